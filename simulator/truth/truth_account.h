// SPDX-License-Identifier: Apache-2.0
// The true counts of one communicator on one rank, by the rules of proto/README.md, written down independently of the
// plugin.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "proto/collective.h"

namespace nccl_exporter::sim {

enum class Timing : uint8_t { kNone, kProxy, kKernelCpu, kKernel };
std::string_view NameOf(Timing timing);

struct Interval {
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;
};

// One operation among those that share a launch. Its interval grows with the events that NCCL delivers.
struct LaunchMember {
  Function function = Function::kAllReduce;
  uint64_t bytes = 0;
  bool shows_its_end = false;  // there are events from which a plugin can tell that it is complete
  size_t operation = 0;        // its place in the list of operations
  std::optional<Interval> interval = {};
  std::array<uint64_t, 3> phase_ns = {};

  void Cover(uint64_t start_ns, uint64_t stop_ns);
};

struct SizeCounts {
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t timed_operations = 0;
  uint64_t timed_bytes = 0;
  uint64_t busy_ns = 0;
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
  std::array<uint64_t, 3> phase_ns{};  // of kernels over symmetric windows, means of their channels
};

// An operation as the list of operations has it.
struct TrueOperation {
  Function function = Function::kAllReduce;
  uint64_t bytes = 0;
  std::optional<uint64_t> true_ns = {};  // what its kernel took, as it shares it; nothing if no event would tell
  int64_t start_ns = 0;                  // when its kernel started, since the job began
  bool is_affected = false;              // by a fault: an event of it was lost, or told other times than its own
};

// Any thread may call any method.
class TruthAccount {
 public:
  // `ranks` as NCCL tells it: 0 where it does not.
  explicit TruthAccount(uint64_t ranks, bool lists_operations = false)
      : ranks_(ranks), lists_operations_(lists_operations) {}

  void AddCall(Function function);
  // Returns its place in the list of operations.
  size_t AddOperation(Function function, uint64_t bytes, int64_t start_ns = 0);
  // All members of a launch have run to their end.
  void CompleteLaunch(const std::vector<LaunchMember>& members);

  // For the list: the intervals are those of the kernel, whatever is reported.
  void ListDurations(const std::vector<LaunchMember>& members);
  void MarkAffected(size_t operation);

  std::map<Function, FunctionCounts> Counts() const;
  // In the order in which they were added; empty unless it was asked for.
  std::vector<TrueOperation> Operations() const;

 private:
  void AddTimed(const LaunchMember& member, uint64_t duration_ns, bool is_alone);

  const uint64_t ranks_;
  const bool lists_operations_;
  mutable std::mutex mutex_;
  std::map<Function, FunctionCounts> counts_;
  std::vector<TrueOperation> operations_;
};

// Bus bandwidth in whole bytes per second by the definition of nccl-tests; 0 if it has none or the time is 0.
uint64_t BusBytesPerSecond(Function function, uint64_t bytes, uint64_t ranks, uint64_t duration_ns);

// Index of the bucket that counts a value: those of a native histogram of schema 3 from bound 2^(first/8) to 2^(last/8)
// of a unit of `scale` parts.
int BucketOf(uint64_t value, long double scale, int first, int last);

}  // namespace nccl_exporter::sim
