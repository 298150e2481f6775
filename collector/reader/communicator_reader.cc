// SPDX-License-Identifier: Apache-2.0
#include "collector/reader/communicator_reader.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collector/reader/operation_progress.h"
#include "collector/reader/text_field.h"

namespace nccl_exporter::collector {
namespace {

// Limits of numbers that are only displayed. A number above its limit is unknown.
constexpr uint64_t kMaxApiVersion = 255;
constexpr uint64_t kMaxNcclVersion = 10'000'000;  // 99.99.99 is 999999
constexpr uint64_t kMaxGpuIndex = 1023;

constexpr uint32_t kMinorOfNetworkTimedBytes = 6;

constexpr double kMostBusBytes = 1ull << 63;  // 150 days at 700 GB/s

uint64_t Load(const layout::AtomicU64& word) { return word.load(std::memory_order_relaxed); }

template <size_t kWords, size_t kCount>
void LoadAll(const layout::AtomicU64 (&words)[kWords], std::array<uint64_t, kCount>& into) {
  static_assert(kCount <= kWords);
  for (size_t i = 0; i < kCount; ++i) into[i] = Load(words[i]);
}

template <size_t kWords>
void LoadHistogram(const layout::AtomicU64 (&words)[kWords], std::span<uint64_t> into) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::min(Load(words[i]), kMostHistogramCount);
}

// `word` as a value of an enum that ends with kCount, or `fallback`.
template <typename Enum>
Enum EnumOr(uint64_t word, Enum fallback) {
  return word < static_cast<uint64_t>(Enum::kCount) ? static_cast<Enum>(word) : fallback;
}

int IntOr(uint64_t word, uint64_t greatest, int fallback) {
  return word <= greatest ? static_cast<int>(word) : fallback;
}

// Numbers that the segment stores plus one, with 0 for unknown.
int IndexOf(uint64_t word, uint64_t greatest) {
  return word == 0 ? -1 : IntOr(word - 1, greatest, -1);
}

Function FunctionOf(uint64_t word) {
  const uint64_t number = word & 0xff;
  return number < kFunctionCount ? static_cast<Function>(number) : Function::kOther;
}

void DescribeIdentity(const layout::CommunicatorSlot& slot, const Moment& now,
                      CommunicatorSnapshot& communicator) {
  communicator.has_identity = slot.has_identity != 0;
  communicator.id = slot.communicator_id;
  communicator.name = TextOf(slot.name);
  communicator.ranks = slot.ranks;
  communicator.rank = slot.rank;
  communicator.nodes = slot.nodes;
  communicator.api_version = IntOr(slot.api_version, kMaxApiVersion, 0);
  communicator.nccl_version = IntOr(slot.nccl_version, kMaxNcclVersion, 0);
  communicator.event_mask = slot.event_mask;
  communicator.timing_source = EnumOr(slot.timing_source, TimingSource::kNone);
  communicator.timing_reason = EnumOr(slot.timing_reason, TimingReason::kDefault);
  communicator.drift_cause = EnumOr(Load(slot.drift_cause), DriftCause::kNone);
  communicator.probation_launches = Load(slot.probation_launches);
  communicator.gpu_index = IndexOf(slot.gpu_index, kMaxGpuIndex);
  communicator.gpu_uuid = TextOf(slot.gpu_uuid);
  communicator.pci_bus_id = TextOf(slot.pci_bus_id);
  const uint64_t now_ns = static_cast<uint64_t>(std::max<int64_t>(now.realtime_ns, 0));
  communicator.created_realtime_ns =
      static_cast<int64_t>(std::min(slot.created_realtime_ns, now_ns));
}

NetworkCounts CountsOf(const layout::NetworkDirectionBlock (&blocks)[kNetworkDirectionCount]) {
  NetworkCounts counts;
  for (size_t i = 0; i < counts.directions.size(); ++i) {
    LoadAll(blocks[i].wait_ns, counts.directions[i].wait_ns);
    counts.directions[i].bytes = Load(blocks[i].bytes);
    counts.directions[i].operations = Load(blocks[i].operations);
  }
  return counts;
}

// Bus bytes in the network, for functions that are described already.
NetworkBusBytes NetworkBusBytesOf(const layout::CommunicatorSlot& slot,
                                  const CommunicatorSnapshot& communicator) {
  const auto ranks = static_cast<uint32_t>(communicator.ranks);
  const double share = ranks == 0 ? 1 : BusShare(ranks);
  using Sums = std::array<double, kNetworkDirectionCount>;
  Sums all{}, timed{};
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (!communicator.functions.IsInUse(i)) continue;
    const auto function = static_cast<Function>(i);
    uint64_t bytes = 0;
    for (const SizeClassSnapshot& size : communicator.functions[i].sizes) bytes += size.bytes;
    const auto bus_bytes = [&](uint64_t message_bytes) {
      return std::nearbyint(BusBytesOfShare(function, message_bytes, share));
    };
    const double all_here = bus_bytes(bytes);
    const double timed_here = bus_bytes(Load(slot.functions[i].network_timed_bytes));
    for (const auto& direction : kNetworkDirections) {
      const Function other =
          direction.id == NetworkDirection::kSend ? Function::kRecv : Function::kSend;
      if (function == other) continue;
      const auto id = static_cast<size_t>(direction.id);
      all[id] += all_here;
      timed[id] += timed_here;
    }
  }
  const auto whole = [](const Sums& sums) {
    std::array<uint64_t, kNetworkDirectionCount> bytes{};
    for (size_t i = 0; i < sums.size(); ++i)
      bytes[i] = static_cast<uint64_t>(std::min(sums[i], kMostBusBytes));
    return bytes;
  };
  return {.all = whole(all), .timed = whole(timed)};
}

uint64_t OperationsOf(const layout::FunctionBlock& block) {
  uint64_t operations = 0;
  for (size_t i = 0; i < kSizeClassCount; ++i) operations += Load(block.started.operations[i]);
  return operations;
}

// `function` is new.
void DescribeFunction(const layout::FunctionBlock& block, uint64_t operations,
                      FunctionSnapshot& function) {
  function.calls = Load(block.calls);
  if (operations == 0) return;
  function.completed = std::min(Load(block.completed), operations);
  for (size_t i = 0; i < function.sizes.size(); ++i) {
    function.sizes[i] = {.operations = Load(block.started.operations[i]),
                         .bytes = Load(block.started.bytes[i]),
                         .timed_operations = Load(block.timed.timed_operations[i]),
                         .timed_bytes = Load(block.timed.timed_bytes[i]),
                         .busy_ns = Load(block.timed.busy_ns[i])};
  }
  LoadHistogram(block.duration, function.duration);
  LoadHistogram(block.bandwidth, function.bandwidth);
  function.bandwidth_sum_kib = Load(block.bandwidth_sum_kib);
}

// The histogram's function and size class; nothing if it is not in use.
std::optional<std::pair<size_t, size_t>> OwnerOf(const layout::SizeHistogram& histogram) {
  const uint64_t owner = Load(histogram.owner);
  const uint64_t function = owner >> 8 & 0xff, size_class = owner & 0xff;
  if (function >= kFunctionCount || size_class >= kSizeClassCount) return std::nullopt;
  if (owner !=
      layout::SizeHistogramOwner(static_cast<Function>(function), static_cast<int>(size_class)))
    return std::nullopt;
  return std::pair(function, size_class);
}

// Some sizes alone would look like all: a function without room for one is not split.
void KeepWholeSplit(FunctionSnapshot& function) {
  bool is_split = false, is_whole = true;
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const bool has_histogram = !function.duration_by_size[i].counts.empty();
    is_split = is_split || has_histogram;
    is_whole = is_whole && (has_histogram || function.sizes[i].timed_operations == 0);
  }
  if (!is_whole) function.duration_by_size = {};
  if (!is_whole || !is_split) return;
  function.duration = {};
  for (const SizedDurations& sized : function.duration_by_size) {
    for (size_t i = 0; i < sized.counts.size(); ++i) function.duration[i] += sized.counts[i];
  }
}

// Returns the time of the last start or completion.
uint64_t DescribeCounts(const layout::CommunicatorSlot& slot, const Moment& now,
                        CommunicatorSnapshot& communicator) {
  uint64_t last_progress_ns = 0;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const layout::FunctionBlock& block = slot.functions[i];
    last_progress_ns =
        std::max({last_progress_ns, Load(block.last_start_ns), Load(block.last_completion_ns)});
    const uint64_t operations = OperationsOf(block);
    if (operations == 0 && Load(block.calls) == 0) continue;
    DescribeFunction(block, operations, communicator.functions.Change(i));
    if (kFunctions[i].is_point_to_point) continue;
    communicator.started_sequence += operations;
    communicator.completed_sequence += communicator.functions[i].completed;
  }
  communicator.last_progress_realtime_ns = now.RealtimeOf(last_progress_ns);
  communicator.last_progress_monotonic_ns = now.MonotonicOf(last_progress_ns);
  return last_progress_ns;
}

// A finalized communicator has nothing in flight, and no further parts will come.
OperationParts PartsOf(const layout::InFlightEntry& entry, bool is_closed, const Moment& now) {
  const uint64_t parts = Load(entry.parts);
  const uint64_t last_part_ns = Load(entry.last_part_ns);
  OperationParts result;
  result.done = static_cast<uint32_t>(parts);
  result.announced = std::max(static_cast<uint32_t>(parts >> 32), result.done);
  result.is_untimed = (Load(entry.function) & layout::kUntimedFlag) != 0;
  result.quiet_ns = is_closed ? kNever : last_part_ns == 0 ? 0 : now.AgeOf(last_part_ns);
  return result;
}

// When an operation that CompletesByQuiet() will have been quiet for long enough.
uint64_t QuietFrom(const OperationParts& parts, const Moment& now) {
  return static_cast<uint64_t>(now.monotonic_ns) + kQuietNs - parts.quiet_ns + 1;
}

InFlightOperation DescribeOperation(const layout::InFlightEntry& entry, const OperationParts& parts,
                                    const Moment& now) {
  return {.function = FunctionOf(Load(entry.function)),
          .sequence = Load(entry.sequence),
          .start_realtime_ns = now.RealtimeOf(Load(entry.start_ns)),
          .bytes = Load(entry.bytes),
          .peer = IndexOf(Load(entry.peer), INT_MAX),
          .parts_announced = parts.announced,
          .parts_done = parts.done};
}

// The used entries whose ticket belongs to their index, oldest first.
std::vector<const layout::InFlightEntry*> EntriesInUse(const layout::CommunicatorSlot& slot) {
  std::vector<const layout::InFlightEntry*> entries;
  for (size_t i = 0; i < layout::kInFlightEntries; ++i) {
    const uint64_t ticket = Load(slot.in_flight[i].ticket);
    if (ticket != 0 && (ticket - 1) % layout::kInFlightEntries == i)
      entries.push_back(&slot.in_flight[i]);
  }
  std::ranges::sort(entries, {}, [](const auto* entry) { return Load(entry->ticket); });
  return entries;
}

// Whether an operation was timed, which takes parts that were reported. A count of completed ones
// shows less: the plugin counts an operation without parts as complete when its ring comes round.
bool AnyIsTimed(const CommunicatorSnapshot& communicator) {
  for (size_t i = 0; i < kFunctionCount; ++i) {
    for (const SizeClassSnapshot& size : communicator.functions[i].sizes) {
      if (size.timed_operations != 0) return true;
    }
  }
  return false;
}

// Whether parts of an operation were reported that is in flight or was one of the latest: its entry
// keeps them until the next operation takes it. Proxy operations leave no other trace.
bool AnyHasParts(const layout::CommunicatorSlot& slot) {
  return std::ranges::any_of(
      slot.in_flight, [](const layout::InFlightEntry& entry) { return Load(entry.parts) != 0; });
}

void DescribeInFlight(const layout::CommunicatorSlot& slot, const Moment& now,
                      CommunicatorRead& read) {
  CommunicatorSnapshot& communicator = read.communicator;
  bool any_seen = AnyIsTimed(communicator) || AnyHasParts(slot);
  bool any_unobservable = false;  // operations whose completion no event will report
  for (const layout::InFlightEntry* entry : EntriesInUse(slot)) {
    const OperationParts parts = PartsOf(*entry, communicator.is_closed, now);
    const InFlightOperation operation = DescribeOperation(*entry, parts, now);
    if (parts.is_untimed && parts.announced == 0) {
      any_unobservable = true;
      communicator.unseen_operations += communicator.is_closed ? 0 : 1;
    }
    const OperationProgress progress = JudgeOperation(communicator.timing_source, parts);
    int64_t& oldest_ns = communicator.oldest_unfinished_realtime_ns;
    if (progress != OperationProgress::kComplete &&
        (oldest_ns == 0 || operation.start_realtime_ns < oldest_ns)) {
      oldest_ns = operation.start_realtime_ns;
    }
    if (progress == OperationProgress::kComplete &&
        !TraitsOf(operation.function).is_point_to_point) {
      ++communicator.completed_sequence;
    }
    if (progress == OperationProgress::kInFlight && !communicator.is_closed) {
      communicator.in_flight.push_back(operation);
      if (CompletesByQuiet(parts))
        read.stale_at_ns = std::min(read.stale_at_ns, QuietFrom(parts, now));
    }
  }
  communicator.completed_sequence =
      std::min(communicator.completed_sequence, communicator.started_sequence);
  // Operations that finalize gave up had not completed, or their completion could not be seen. The
  // slot is the same in both cases.
  if (communicator.is_closed && communicator.completed_sequence < communicator.started_sequence)
    any_unobservable = true;
  communicator.completion_is_known =
      CompletionIsKnown(communicator.timing_source, any_seen) && !any_unobservable;
}

}  // namespace

CommunicatorRead DescribeCommunicator(const layout::CommunicatorSlot& slot, uint32_t slot_number,
                                      bool is_overflow, const Moment& now) {
  CommunicatorRead read;
  CommunicatorSnapshot& communicator = read.communicator;
  const uint64_t state = Load(slot.state);
  communicator.is_overflow = is_overflow;
  communicator.slot = slot_number;
  communicator.generation = layout::GenerationOf(state);
  communicator.is_closed = !is_overflow && layout::StateOf(state) == layout::SlotState::kClosed;
  DescribeIdentity(slot, now, communicator);
  if (is_overflow) {
    communicator.has_identity = false;
    communicator.timing_source = TimingSource::kNone;
    communicator.timing_reason = TimingReason::kOverflow;
  }
  read.latest_ns = std::max(DescribeCounts(slot, now, communicator),
                            is_overflow ? uint64_t{0} : slot.created_monotonic_ns);
  DescribeInFlight(slot, now, read);
  return read;
}

void SplitDurations(const layout::CommunicatorSlot& slot, CommunicatorSnapshot& communicator) {
  for (const layout::SizeHistogram& histogram : slot.size_histograms) {
    const auto owner = OwnerOf(histogram);
    if (!owner || !communicator.functions.IsInUse(owner->first)) continue;
    FunctionSnapshot& function = communicator.functions.Change(owner->first);
    SizedDurations& sized = function.duration_by_size[owner->second];
    sized.busy_ns = function.sizes[owner->second].busy_ns;
    sized.counts.resize(DurationBuckets::kCount);
    LoadHistogram(histogram.duration, sized.counts);
  }
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (communicator.functions.IsInUse(i)) KeepWholeSplit(communicator.functions.Change(i));
  }
}

void DescribeNetwork(const layout::CommunicatorSlot& slot, uint32_t minor,
                     CommunicatorSnapshot& communicator) {
  const layout::NetworkBlock& block = slot.network;
  const uint64_t share_ppm = std::min(Load(block.share_ppm), uint64_t{kWholeDutyPpm});
  if (share_ppm == 0) return;
  communicator.network_share_ppm = static_cast<uint32_t>(share_ppm);
  communicator.network = CountsOf(block.directions);
  if (minor >= kMinorOfNetworkTimedBytes)
    communicator.network_bus_bytes = NetworkBusBytesOf(slot, communicator);
}

bool HasCounts(const layout::CommunicatorSlot& slot) {
  return std::ranges::any_of(slot.functions, [](const layout::FunctionBlock& block) {
    return Load(block.calls) != 0 || OperationsOf(block) != 0;
  });
}

}  // namespace nccl_exporter::collector
