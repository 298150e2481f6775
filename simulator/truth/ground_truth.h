// SPDX-License-Identifier: Apache-2.0
// Ground truth of one communicator on one rank: its counts by the rules of proto/README.md, which
// are implemented here a second time and share nothing with the plugin.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "proto/collective.h"
#include "simulator/release/release.h"
#include "simulator/truth/ground_truth_sink.h"
#include "simulator/truth/network_account.h"

namespace nccl_exporter::sim {

std::string_view NameOf(Timing timing);

struct SizeCounts {
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t timed_operations = 0;
  uint64_t timed_bytes = 0;
  uint64_t busy_ns = 0;
  std::map<int, uint64_t> duration;  // by index of the bucket
};

struct FunctionCounts {
  uint64_t calls = 0;
  uint64_t completed = 0;
  std::map<uint64_t, SizeCounts> sizes;  // by lower bound of the size class
  std::map<int, uint64_t> duration;      // by index of the bucket
  uint64_t duration_sum_ns = 0;
  std::map<int, uint64_t> bandwidth;  // by index of the bucket
  double bandwidth_sum = 0;           // bytes per second
  uint64_t bandwidth_sum_kib = 0;
};

// Truth about the network, over all operations that ended and over those that were reported to the
// plugin.
struct NetworkTruth {
  struct Direction {
    NetworkCounts all;
    NetworkCounts reported;
  };
  Direction send;
  Direction receive;
  // More than were counted as reported at their end: some never ended.
  uint64_t reported_started = 0;
  uint64_t foreign_taken = 0;

  bool Any() const { return send.all.operations + receive.all.operations + reported_started > 0; }
};

// An operation as the list of operations has it.
struct TrueOperation {
  Function function = Function::kAllReduce;
  uint64_t bytes = 0;
  std::optional<uint64_t> true_ns = {};  // share of its kernel's time; nothing if no event has it
  int64_t start_ns = 0;                  // when its kernel started, since the job began
  // A fault has affected it: an event of it was lost, or carried the times of other work.
  bool is_affected = false;
};

// Any thread may call any method.
class GroundTruth final : public GroundTruthSink {
 public:
  // `ranks` as NCCL reports it: 0 where it does not.
  GroundTruth(uint64_t ranks, const Release& release, bool lists_operations = false)
      : ranks_(ranks), release_(release), lists_operations_(lists_operations) {}

  void AddCall(Function function) override;
  size_t AddOperation(Function function, uint64_t bytes, int64_t start_ns = 0) override;
  void CompleteLaunch(const std::vector<LaunchMember>& members) override;
  void AddNetworkOperation(const NetworkOperation& operation) override;
  void AddReportedNetworkOperation(bool is_foreign) override;
  void ListDurations(const std::vector<LaunchMember>& members) override;
  void MarkAffected(size_t operation) override;
  bool BringsDrift(const std::vector<LaunchedTask>& tasks, bool replays_after_eager) const override;

  std::map<Function, FunctionCounts> Counts() const;
  NetworkTruth Network() const;
  // In the order in which they were added; empty unless it was asked for.
  std::vector<TrueOperation> Operations() const;

 private:
  void AddTimed(const LaunchMember& member, uint64_t duration_ns, bool is_alone);

  const uint64_t ranks_;
  const Release& release_;
  const bool lists_operations_;
  mutable std::mutex mutex_;
  std::map<Function, FunctionCounts> counts_;
  std::vector<TrueOperation> operations_;
  NetworkTruth network_;
};

// Bus bandwidth in whole bytes per second by the definition of nccl-tests; 0 if it has none or the
// time is 0.
uint64_t BusBytesPerSecond(Function function, uint64_t bytes, uint64_t ranks, uint64_t duration_ns);

// Index of the bucket that counts a value: those of a native histogram of schema 3 from bound
// 2^(first/8) to 2^(last/8) of a unit of `scale` parts.
int BucketOf(uint64_t value, long double scale, int first, int last);

}  // namespace nccl_exporter::sim
