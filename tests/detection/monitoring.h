// SPDX-License-Identifier: Apache-2.0
// Monitoring of a simulated cluster: a real daemon for every node, a Prometheus with the rules
// under test, and Debian's Alertmanager.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "tests/detection/rule_set.h"
#include "tests/detection/verdict.h"

namespace nccl_exporter::detection {

inline constexpr char kAlertmanager[] = "/usr/bin/prometheus-alertmanager";

// Of what a run is made of; with more it says nothing.
inline constexpr double kMostMissing = 0.1;

class Monitoring {
 public:
  // `rules` outlives it. Starts all and waits until they are ready; what does not start is thrown
  // as std::runtime_error.
  Monitoring(int nodes, const RuleSet& rules);

  // Directory of the segments of the node %n.
  std::string SegmentDirectory() const { return scratch_.path() + "/segments%n"; }
  const std::string& scratch() const { return scratch_.path(); }

  // Shell command of an interactive `top` of the node, with the durations of the rules.
  std::string TopCommand(int node) const;

  void RestartDaemon(int node);
  void HoldDaemon(int node, bool is_held);
  void RestartPrometheus();

  // Nodes of which more than kMostMissing of the scrapes failed, or were not made, in the last so
  // many seconds.
  std::optional<int> NodesWithGaps(double seconds) const;
  // Share of the rules' evaluations that Prometheus left out because those before took too long.
  std::optional<double> MissedEvaluations() const;

  // The findings that the nodes' daemons show now, as alerts: one for each culprit, named
  // "page:KIND", or one for the finding if it has none. Times are 0. Only those that page: late
  // ranks, hangs that are critical. Daemons that do not answer have none.
  std::vector<PagedAlert> Findings() const;

  // The alerts that Alertmanager shows now; times since the Unix epoch. Nothing if it does not
  // answer.
  std::optional<std::vector<PagedAlert>> Alerts() const;

 private:
  void WriteConfiguration() const;
  void AddScrapes(std::ostream& configuration, const std::string& part, double interval_s,
                  const std::string& labels) const;
  std::unique_ptr<exporter::ChildProcess> StartDaemon(int node) const;
  std::unique_ptr<exporter::ChildProcess> StartPrometheus() const;

  const RuleSet& rules_;
  collector::ScratchDirectory scratch_;
  std::vector<int> ports_;  // of the daemons
  int prometheus_port_;
  int alertmanager_port_;
  std::vector<std::unique_ptr<exporter::ChildProcess>> daemons_;
  std::vector<bool> are_held_;  // daemons that answer nothing
  std::unique_ptr<exporter::ChildProcess> alertmanager_;
  std::unique_ptr<exporter::ChildProcess> prometheus_;
};

}  // namespace nccl_exporter::detection
