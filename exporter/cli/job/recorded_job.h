// SPDX-License-Identifier: Apache-2.0
// RecordedJob, a Prometheus that answers with what a test has recorded: a job of 4 ranks a node,
// and what the rules and the daemons say of it. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exporter/cli/job/job_command.h"
#include "exporter/cli/job/prometheus.h"

namespace nccl_exporter::exporter {

class RecordedJob {
 public:
  using Labels = std::map<std::string, std::string>;

  static constexpr double kNow = 1700000100;  // 2023-11-14T22:15:00Z

  // A series that queries with this text have, unless they have a longer one that is recorded. A
  // query without any has no series.
  void Add(const std::string& query, Labels labels, double value = 1);
  void Forget(const std::string& query) { answers_.erase(query); }

  void AddJob(Labels labels, double processes);
  // One in which ranks 0, 1 and so on of the communicator are these of the job. The rules have seen
  // `changes` of its progress; none: they have no series of it.
  void AddCommunicator(const std::string& id, const std::string& name,
                       const std::vector<int>& ranks, std::optional<double> changes);
  void SetRulesAge(double seconds);
  // Nothing has moved on these ranks of the communicator for some seconds. All have started as many
  // collectives. `in_flight`: operations; none where completion is not seen.
  void Quiet(const std::string& id, const std::vector<int>& ranks, double started,
             std::optional<double> in_flight, const std::string& function = "",
             double since = kNow - 600);
  // The rules say so.
  void Wait(const std::string& id, const std::vector<int>& ranks);
  void IsCulprit(const std::string& id, int rank, double behind);
  void IsLate(const std::string& id, int rank, double share);
  // By the alert series, and by detail.
  void Halt(int global_rank) { Add("(nccl_process_halted{", ProcessOf(global_rank)); }
  void Ended(int global_rank) { Add("(nccl_process_alive{", ProcessOf(global_rank)); }
  void Stopped(int global_rank) { Add("(nccl_process_stopped{", ProcessOf(global_rank)); }
  // `place`: RankOf() or other labels.
  void Fire(const std::string& alert, const std::string& severity, Labels place,
            double since = kNow - 480);

  static Labels ProcessOf(int global_rank);
  Labels RankOf(const std::string& id, int rank) const;

  AskPrometheus Ask() const;
  const std::vector<std::string>& queries() const { return queries_; }

  std::string fault;                  // of each answer
  std::vector<std::string> warnings;  // the same

  // What the command prints, and says where it fails.
  std::string Text(const JobRequest& request = {}, const JobView& view = {});
  const std::string& failure() const { return failure_; }

 private:
  struct Communicator {
    std::string name;
    std::vector<int> ranks;
  };

  std::map<std::string, Communicator> communicators_;
  std::map<std::string, std::vector<Sample>> answers_;
  mutable std::vector<std::string> queries_;
  std::string failure_;
};

}  // namespace nccl_exporter::exporter
