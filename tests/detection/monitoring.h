// SPDX-License-Identifier: Apache-2.0
// Monitoring of a simulated cluster: a real daemon for every node, a Prometheus with the rules
// under test, and Debian's Alertmanager.
#pragma once

#include <map>
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

// Largest share of scrapes or evaluations that a run may miss. A run that misses more is void.
inline constexpr double kMostMissing = 0.1;

// Alert that always fires: it proves that alerts reach the receiver.
inline constexpr char kWatchdog[] = "DetectionWatchdog";

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

  // Returns which scrapes or evaluations Prometheus missed in the last `seconds`, if more than
  // kMostMissing; else an empty text. The machine is too busy then.
  std::string Neglected(double seconds) const;

  // Returns the faults that do not depend on the machine, one line each: a program that has ended,
  // a rule that failed, a daemon that is not scraped, an alert that does not arrive.
  std::vector<std::string> Faults();
  // Returns the daemons that left more than kMostMissing of the requests of the last `seconds`
  // unanswered. The test must not have suspended any of them in this time.
  std::vector<std::string> Unanswered(double seconds) const;

  // The findings that the nodes' daemons show now, as alerts: one for each culprit, named
  // "page:KIND", or one for the finding if it has none; "wait:KIND" of a wait that is no hang
  // yet. Times are 0. None of those that only inform, and of daemons that do not answer.
  std::vector<PagedAlert> Findings();

  // The alerts that Alertmanager shows now; times since the Unix epoch. Nothing if it does not
  // answer.
  std::optional<std::vector<PagedAlert>> Alerts() const;

  // The alerts in `nccl-exporter report` about the job of `alert`, by Prometheus. Throws
  // std::runtime_error if the command fails.
  std::vector<PagedAlert> Reported(const PagedAlert& alert) const;

 private:
  void WriteConfiguration() const;
  void AddScrapes(std::ostream& configuration, const std::string& part, double interval_s,
                  const std::string& labels) const;
  std::unique_ptr<exporter::ChildProcess> StartDaemon(int node) const;
  std::unique_ptr<exporter::ChildProcess> StartPrometheus() const;
  // Ends it, which must end well.
  void End(const std::string& name, exporter::ChildProcess& process);
  // The samples of an instant query, by instance. Nothing if Prometheus does not answer.
  std::optional<std::map<std::string, double>> Query(const std::string& expression) const;
  // Sum of Prometheus's own counters of that name. Nothing as above.
  std::optional<double> OwnCount(const std::string& name) const;
  void NoteFailedRules();

  const RuleSet& rules_;
  collector::ScratchDirectory scratch_;
  std::vector<int> ports_;  // of the daemons
  int prometheus_port_;
  int alertmanager_port_;
  std::vector<std::unique_ptr<exporter::ChildProcess>> daemons_;
  std::vector<bool> are_held_;  // daemons that answer nothing
  std::vector<int> asked_;      // by daemon: for findings
  std::vector<int> answered_;
  std::vector<std::string> faults_;  // until now
  std::unique_ptr<exporter::ChildProcess> alertmanager_;
  std::unique_ptr<exporter::ChildProcess> prometheus_;
};

}  // namespace nccl_exporter::detection
