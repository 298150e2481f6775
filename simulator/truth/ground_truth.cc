// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth/ground_truth.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "simulator/truth/drift.h"

namespace nccl_exporter::sim {
namespace {

__extension__ typedef unsigned __int128 Wide;

// Written down again, not taken from the plugin: the account must not share its mistakes.
constexpr uint64_t kSizeClasses[] = {0, 4096, 65536, 1048576, 16777216, 268435456};
constexpr uint64_t kLeastBytesForBandwidth = 1048576;

uint64_t SizeClass(uint64_t bytes) {
  return *std::prev(std::upper_bound(std::begin(kSizeClasses), std::end(kSizeClasses), bytes));
}

// Bounds are powers of 2 to an eighth: of a second, and of a byte a second.
int DurationBucket(uint64_t ns) { return BucketOf(ns, 1e9L, -160, 80); }
int BandwidthBucket(uint64_t bytes_per_second) {
  return BucketOf(bytes_per_second, 1.0L, 160, 336);
}

// Members of a launch that share its time among themselves: collectives, sends, receives.
int KindOf(Function function) {
  if (function == Function::kSend) return 1;
  return function == Function::kRecv ? 2 : 0;
}

// An operation without bytes has a share, too.
uint64_t WeightOf(const LaunchMember& member) { return std::max<uint64_t>(member.bytes, 1); }

// Share of each member in the time of its launch; nothing if it has no interval.
std::vector<std::optional<uint64_t>> SharesOf(const std::vector<LaunchMember>& members) {
  struct Shared {
    Interval span{UINT64_MAX, 0};
    Wide weight = 0;
  };
  std::array<Shared, 3> kinds;
  for (const LaunchMember& member : members) {
    if (!member.interval) continue;
    Shared& kind = kinds[static_cast<size_t>(KindOf(member.function))];
    kind.span.start_ns = std::min(kind.span.start_ns, member.interval->start_ns);
    kind.span.stop_ns = std::max(kind.span.stop_ns, member.interval->stop_ns);
    kind.weight += WeightOf(member);
  }
  std::vector<std::optional<uint64_t>> shares(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    if (!members[i].interval) continue;
    const Shared& kind = kinds[static_cast<size_t>(KindOf(members[i].function))];
    const Wide span_ns = kind.span.stop_ns - kind.span.start_ns;
    shares[i] = static_cast<uint64_t>(span_ns * WeightOf(members[i]) / kind.weight);
  }
  return shares;
}

}  // namespace

std::string_view NameOf(Timing timing) {
  switch (timing) {
    case Timing::kProxy:
      return "proxy";
    case Timing::kKernelCpu:
      return "kernel_cpu";
    case Timing::kKernel:
      return "kernel";
    case Timing::kNone:
      break;
  }
  return "none";
}

// By bisection over bounds in extended precision, where the plugin has a table of integers.
int BucketOf(uint64_t value, long double scale, int first, int last) {
  int low = first;
  int high = last + 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (static_cast<long double>(value) <=
        scale * std::exp2(static_cast<long double>(middle) / 8)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low - first;
}

// The factors of nccl-tests (doc/PERFORMANCE.md), as a fraction.
uint64_t BusBytesPerSecond(Function function, uint64_t bytes, uint64_t ranks,
                           uint64_t duration_ns) {
  Wide numerator = 1;
  Wide denominator = 1;
  switch (function) {
    case Function::kAllReduce:
      numerator = ranks == 0 ? 0 : 2 * (ranks - 1);
      denominator = std::max<uint64_t>(ranks, 1);
      break;
    case Function::kAllGather:
    case Function::kReduceScatter:
      numerator = ranks == 0 ? 0 : ranks - 1;
      denominator = std::max<uint64_t>(ranks, 1);
      break;
    case Function::kBroadcast:
    case Function::kReduce:
      break;
    default:  // the simulator plays no other collective as one operation
      return 0;
  }
  if (duration_ns == 0) return 0;
  return static_cast<uint64_t>(Wide{bytes} * numerator * 1000000000 / (denominator * duration_ns));
}

bool GroundTruth::BringsDrift(const std::vector<LaunchedTask>& tasks,
                              bool replays_after_eager) const {
  return LaunchBringsDrift(tasks, replays_after_eager, release_);
}

void GroundTruth::AddCall(Function function) {
  const std::lock_guard lock(mutex_);
  ++counts_[function].calls;
}

size_t GroundTruth::AddOperation(Function function, uint64_t bytes, int64_t start_ns) {
  const std::lock_guard lock(mutex_);
  SizeCounts& size = counts_[function].sizes[SizeClass(bytes)];
  ++size.operations;
  size.bytes += bytes;
  if (lists_operations_)
    operations_.push_back({.function = function, .bytes = bytes, .start_ns = start_ns});
  return operations_.size() - 1;
}

void GroundTruth::CompleteLaunch(const std::vector<LaunchMember>& members) {
  const std::lock_guard lock(mutex_);
  const std::vector<std::optional<uint64_t>> shares = SharesOf(members);
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].shows_its_end) ++counts_[members[i].function].completed;
    if (shares[i]) AddTimed(members[i], *shares[i], members.size() == 1);
  }
}

void GroundTruth::AddNetworkOperation(const NetworkOperation& operation) {
  const std::lock_guard lock(mutex_);
  NetworkTruth::Direction& direction = operation.is_send ? network_.send : network_.receive;
  direction.all.Add(operation);
  if (!operation.is_reported) return;
  direction.reported.Add(operation);
}

void GroundTruth::AddReportedNetworkOperation(bool is_foreign) {
  const std::lock_guard lock(mutex_);
  ++(is_foreign ? network_.foreign_taken : network_.reported_started);
}

NetworkTruth GroundTruth::Network() const {
  const std::lock_guard lock(mutex_);
  return network_;
}

void GroundTruth::ListDurations(const std::vector<LaunchMember>& members) {
  const std::lock_guard lock(mutex_);
  if (!lists_operations_) return;
  const std::vector<std::optional<uint64_t>> shares = SharesOf(members);
  for (size_t i = 0; i < members.size(); ++i) operations_[members[i].operation].true_ns = shares[i];
}

void GroundTruth::MarkAffected(size_t operation) {
  const std::lock_guard lock(mutex_);
  if (lists_operations_) operations_[operation].is_affected = true;
}

// A bandwidth is that of one operation alone: in a group the launch's time is shared by size, and
// the share would show the size again.
void GroundTruth::AddTimed(const LaunchMember& member, uint64_t duration_ns, bool is_alone) {
  FunctionCounts& function = counts_[member.function];
  SizeCounts& size = function.sizes[SizeClass(member.bytes)];
  ++size.timed_operations;
  size.timed_bytes += member.bytes;
  size.busy_ns += duration_ns;
  ++function.duration[DurationBucket(duration_ns)];
  ++size.duration[DurationBucket(duration_ns)];
  function.duration_sum_ns += duration_ns;
  if (!is_alone || member.bytes < kLeastBytesForBandwidth) return;
  const uint64_t bandwidth = BusBytesPerSecond(member.function, member.bytes, ranks_, duration_ns);
  if (bandwidth == 0) return;
  ++function.bandwidth[BandwidthBucket(bandwidth)];
  function.bandwidth_sum += static_cast<double>(bandwidth);
  function.bandwidth_sum_kib += (bandwidth + 512) / 1024;
}

std::map<Function, FunctionCounts> GroundTruth::Counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<TrueOperation> GroundTruth::Operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

}  // namespace nccl_exporter::sim
