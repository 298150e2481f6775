// SPDX-License-Identifier: Apache-2.0
#include "collector/reader/segment_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nccl_exporter::collector {
namespace {

using layout::CommunicatorSlot;
using layout::InFlightEntry;
using layout::SlotState;

// Copies of a slot at most. Its state changes a few times in the life of a communicator, so a
// second copy succeeds in nearly all cases.
constexpr int kSlotAttempts = 2;

// Longer than any snapshot takes. A communicator with a later time of creation is not new: its time
// is wrong.
constexpr uint64_t kLongestReadNs = 10'000'000'000;

// The part of a slot that is read. A snapshot needs nothing from the ring of completions behind it.
constexpr size_t kSlotBytesRead = offsetof(CommunicatorSlot, completions);

// The minor of the layout from which on a slot has the numbers of its communicator.
constexpr uint32_t kMinorOfRankNumbers = 7;

std::optional<uint32_t> Below(uint64_t number_plus_1, uint64_t size) {
  if (number_plus_1 == 0 || number_plus_1 > size) return std::nullopt;
  return static_cast<uint32_t>(number_plus_1 - 1);
}

RankNumbers Checked(uint64_t global_rank_plus_1, uint64_t local_rank_plus_1, uint64_t world_size) {
  if (world_size > std::numeric_limits<int32_t>::max()) return {};
  RankNumbers numbers{.global_rank = Below(global_rank_plus_1, world_size),
                      .local_rank = Below(local_rank_plus_1, world_size),
                      .world_size = static_cast<uint32_t>(world_size)};
  if (!numbers.global_rank) return {};
  return numbers;
}

// 0 if the text is no decimal number.
uint64_t PlusOne(const std::string& text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  return fault == std::errc() && stop == end ? uint64_t{number} + 1 : 0;
}

// Numbers in a slot of kMinorOfRankNumbers. Numbers that contradict each other are none.
RankNumbers NumbersOf(const layout::CommunicatorSlot& slot) {
  return Checked(slot.global_rank, slot.local_rank, slot.world_size);
}

// Numbers of all communicators of a process with an older minor: RANK, if it is a decimal number
// below WORLD_SIZE. Without RANK there is none, for such a segment does not say how many tasks
// Slurm's step has.
RankNumbers NumbersOf(const ProcessSnapshot& process) {
  const uint64_t size_plus_1 = PlusOne(process.Identity("WORLD_SIZE"));
  if (size_plus_1 == 0) return {};
  return Checked(PlusOne(process.Identity("RANK")), PlusOne(process.Identity("LOCAL_RANK")),
                 size_plus_1 - 1);
}

uint64_t BytesOfDurationsBySize(const FunctionSnapshot& function) {
  uint64_t bytes = 0;
  for (const SizedDurations& sized : function.duration_by_size)
    bytes += sized.counts.size() * sizeof(uint64_t);
  return bytes;
}

class SegmentReading {
 public:
  SegmentReading(const SegmentSource& source, SlotDirectory directory, const ReadTerms& terms)
      : source_(source),
        directory_(std::move(directory)),
        terms_(terms),
        now_(terms.now.Ahead(terms.clock_offset_ns)) {}

  SegmentRead Read() {
    result_.fault = std::move(directory_.fault);
    result_.lacked_slots = directory_.lacked_slots;
    result_.slots = directory_.heads.size();
    result_.header_bytes = directory_.header_bytes;
    result_.slot_bytes = directory_.slot_bytes;
    if (!directory_.process) return std::move(result_);
    result_.process = std::move(directory_.process);
    result_.process->start_monotonic_ns -= terms_.clock_offset_ns;
    result_.last_sign_of_life_realtime_ns = result_.process->start_realtime_ns;
    ReadSlots();
    if (!result_.fault) FindLatestNumbers();
    if (result_.fault) {
      result_.process.reset();
      result_.wanted_in_use = result_.wanted_finalized = 0;
    }
    if (result_.process)
      std::ranges::sort(result_.process->communicators, {}, &CommunicatorSnapshot::slot);
    return std::move(result_);
  }

 private:
  enum class Copy { kDone, kChanged, kFailed };

  // Fills `into`, or records the fault.
  bool CopyAll(uint64_t offset, std::span<std::byte> into) {
    std::optional<SegmentFault> fault = nccl_exporter::collector::CopyAll(source_, offset, into);
    if (fault) result_.fault = std::move(fault);
    return !result_.fault;
  }

  template <typename Object>
  static std::span<std::byte> BytesOf(Object& object, size_t bytes = sizeof(Object)) {
    return {reinterpret_cast<std::byte*>(&object), bytes};
  }

  uint64_t NowNs() const { return static_cast<uint64_t>(std::max<int64_t>(now_.monotonic_ns, 0)); }
  uint64_t OffsetOf(uint32_t slot) const { return directory_.OffsetOf(slot); }
  bool IsOverflow(uint32_t slot) const { return slot == directory_.overflow_slot(); }
  bool IsLive(uint32_t slot) const { return directory_.heads[slot].state() == SlotState::kLive; }

  // Whether the communicator is published, and not finalized for longer than the retention time.
  bool IsWanted(const SlotHead& head) {
    return head.state() == SlotState::kLive ||
           (head.state() == SlotState::kClosed && !IsOver(head.closed_monotonic_ns));
  }

  // The overflow slot first: it is the rest of the process. Where there is no room for one that is
  // in use, there is none for what comes behind it.
  void ReadSlots() {
    const std::vector<uint32_t> wanted = Wanted();
    const uint64_t in_use_limit = std::max(terms_.communicator_limit, terms_.in_use_limit);
    size_t next = 0;
    bool has_room = ReadSlot(directory_.overflow_slot(), in_use_limit);
    while (has_room && next < wanted.size() && !result_.fault) {
      const uint32_t slot = wanted[next];
      has_room = ReadSlot(slot, IsLive(slot) ? in_use_limit : terms_.communicator_limit);
      next += has_room;
    }
    ProcessSnapshot& process = *result_.process;
    for (; next < wanted.size(); ++next)
      ++(IsLive(wanted[next]) ? process.unread_in_use : process.unread_finalized);
    result_.wanted_in_use += process.unread_in_use * largest_room_;
    result_.wanted_finalized += process.unread_finalized * largest_room_;
    process.unread_in_use += result_.lacked_slots ? 1 : 0;
  }

  // In the order in which they are read.
  std::vector<uint32_t> Wanted() {
    std::vector<uint32_t> wanted;
    for (uint32_t slot = 0; slot < directory_.heads.size(); ++slot) {
      if (IsWanted(directory_.heads[slot])) wanted.push_back(slot);
    }
    std::ranges::stable_sort(wanted, {}, [&](uint32_t slot) {
      const SlotHead& head = directory_.heads[slot];
      const bool is_live = IsLive(slot);
      return std::pair(!is_live, is_live ? head.created_monotonic_ns : ~head.closed_monotonic_ns);
    });
    return wanted;
  }

  // Copies are limited as well as results, because a slot may be claimed again and again while it
  // is copied.
  bool HasRoom(uint64_t limit) const {
    return result_.room < limit && result_.copied_slots < kSlotAttempts * limit;
  }

  // Whether there was room for it within the limit. The overflow slot belongs to no communicator,
  // so it is read in any state.
  bool ReadSlot(uint32_t slot, uint64_t limit) {
    Copy copy = Copy::kChanged;
    for (int attempt = 0; attempt < kSlotAttempts && copy == Copy::kChanged; ++attempt) {
      if (!HasRoom(limit)) return false;
      if (!IsOverflow(slot)) {
        if (attempt != 0 && !IsStillWanted(slot)) return true;
        ++result_.copied_slots;
      }
      copy = CopySlot(slot);
    }
    if (copy == Copy::kChanged) ++result_.changed_slots;
    return copy != Copy::kDone || !IsServed(slot) || AddCommunicator(slot, limit);
  }

  // Whether a slot that has changed since its head was read is still wanted.
  bool IsStillWanted(uint32_t slot) {
    std::optional<SegmentFault> fault;
    const std::optional<SlotHead> head = ReadSlotHead(source_, OffsetOf(slot), fault);
    if (fault) result_.fault = std::move(fault);
    if (head) directory_.heads[slot] = *head;
    return head && IsWanted(*head);
  }

  // A copy is of one communicator if the slot's state is the same in a read before it, in it, and
  // in a read after it. The one in it does not suffice: its words were read in any order.
  Copy CopySlot(uint32_t slot) {
    if (!slot_) slot_ = std::make_unique<CommunicatorSlot>();
    if (!CopyAll(OffsetOf(slot), BytesOf(*slot_, kSlotBytesRead)) || !DropChangedEntries(slot) ||
        !CopyLaterFields(slot))
      return Copy::kFailed;
    layout::AtomicU64 state_after{0};
    if (!CopyAll(OffsetOf(slot), BytesOf(state_after))) return Copy::kFailed;
    const uint64_t state_in_copy = slot_->state.load(std::memory_order_relaxed);
    const bool is_same = state_after.load(std::memory_order_relaxed) == state_in_copy &&
                         (IsOverflow(slot) || directory_.heads[slot].state_word == state_in_copy);
    return is_same ? Copy::kDone : Copy::kChanged;
  }

  // An entry in flight is read between two reads of its ticket, and is whole if they are equal. The
  // plugin stores a ticket after the rest of its entry, a 0 before it, and no ticket twice. Other
  // entries get ticket 0. The ticket of the same copy proves nothing: its words were read in any
  // order. //tests/memory_order has the model.
  bool DropChangedEntries(uint32_t slot) {
    const std::span<InFlightEntry> entries(slot_->in_flight);
    const auto is_free = [](const InFlightEntry& entry) {
      return entry.ticket.load(std::memory_order_relaxed) == 0;
    };
    const auto first =
        static_cast<size_t>(std::ranges::find_if_not(entries, is_free) - entries.begin());
    if (first == entries.size()) return true;
    size_t end = entries.size();
    while (is_free(entries[end - 1])) --end;
    std::array<uint64_t, layout::kInFlightEntries> tickets{};
    for (size_t i = first; i < end; ++i)
      tickets[i] = entries[i].ticket.load(std::memory_order_relaxed);
    if (!entries_after_) entries_after_ = std::make_unique<Entries>();
    const std::span<InFlightEntry> after(entries_after_->data() + first, end - first);
    const uint64_t offset =
        OffsetOf(slot) + offsetof(CommunicatorSlot, in_flight) + first * sizeof(InFlightEntry);
    if (!CopyAll(offset, std::as_writable_bytes(entries.subspan(first, end - first))) ||
        !CopyAll(offset, std::as_writable_bytes(after)))
      return false;
    for (size_t i = first; i < end; ++i) {
      const bool is_whole =
          tickets[i] == (*entries_after_)[i].ticket.load(std::memory_order_relaxed);
      entries[i].ticket.store(is_whole ? tickets[i] : 0, std::memory_order_relaxed);
    }
    return true;
  }

  bool HasSizeHistograms() const {
    return terms_.splits_durations && directory_.slot_bytes >= sizeof(CommunicatorSlot);
  }

  // In 1.3 it reads as zeros, before that there is none.
  bool HasNetwork() const { return directory_.slot_bytes >= sizeof(CommunicatorSlot); }

  // Histograms by size, if they are wanted, and behind them the counters of network time and the
  // numbers of the rank. After the functions: see shm_layout.h.
  bool CopyLaterFields(uint32_t slot) {
    if (!HasNetwork()) return true;
    const size_t begin = HasSizeHistograms() ? offsetof(CommunicatorSlot, size_histograms)
                                             : offsetof(CommunicatorSlot, network);
    constexpr size_t kEnd = offsetof(CommunicatorSlot, world_size) + sizeof(uint64_t);
    return CopyAll(OffsetOf(slot) + begin, BytesOf(*slot_).subspan(begin, kEnd - begin));
  }

  // Whether the copied slot is served. A finalized communicator is, for the retention time.
  bool IsServed(uint32_t slot) {
    if (IsOverflow(slot)) return HasCounts(*slot_);
    const SlotState state = layout::StateOf(slot_->state.load(std::memory_order_relaxed));
    if (IsNewerThanNow()) return false;
    if (state != SlotState::kClosed) return state == SlotState::kLive;
    return !IsOver(slot_->closed_monotonic_ns.load(std::memory_order_relaxed));
  }

  // Whether the retention time of a communicator that was finalized then is over.
  bool IsOver(uint64_t closed_ns) {
    const uint64_t retention_ns = static_cast<uint64_t>(terms_.retention.count());
    const uint64_t age_ns = now_.AgeOf(closed_ns);
    NoteLife(now_.RealtimeOf(closed_ns));
    if (age_ns > retention_ns) return true;
    NoteStaleAt(NowNs() + (retention_ns - age_ns) + 1);
    return false;
  }

  // A communicator that was created after the moment of this read is left to the next read.
  // Otherwise its time of creation would be moved back to this moment, and change at the next read:
  // its counters would seem to begin again.
  bool IsNewerThanNow() {
    const uint64_t created_ns = slot_->created_monotonic_ns;
    const uint64_t now_ns = NowNs();
    NoteLatest(created_ns);
    if (created_ns <= now_ns || created_ns - now_ns > kLongestReadNs) return false;
    NoteStaleAt(created_ns);
    return true;
  }

  // Whether there is room for it.
  bool AddCommunicator(uint32_t slot, uint64_t limit) {
    CommunicatorRead read = DescribeCommunicator(*slot_, slot, IsOverflow(slot), now_);
    CommunicatorSnapshot& communicator = read.communicator;
    if (HasSizeHistograms()) SplitDurations(*slot_, communicator);
    if (HasNetwork()) DescribeNetwork(*slot_, directory_.minor, communicator);
    if (!IsOverflow(slot) && !directory_.rank_numbers_process)
      communicator.numbers = HasNumbers() ? NumbersOf(*slot_) : NumbersOf(*result_.process);
    if (communicator.last_progress_monotonic_ns != 0)
      communicator.last_progress_monotonic_ns -= terms_.clock_offset_ns;
    NoteLife(communicator.created_realtime_ns);
    NoteLife(communicator.last_progress_realtime_ns);
    NoteLatest(read.latest_ns);
    NoteStaleAt(read.stale_at_ns);
    const uint64_t room = RoomOf(communicator);
    largest_room_ = std::max(largest_room_, room);
    if (result_.room + room > limit) return false;
    result_.room += room;
    (communicator.is_closed ? result_.wanted_finalized : result_.wanted_in_use) += room;
    result_.process->communicators.push_back(std::move(communicator));
    return true;
  }

  bool HasNumbers() const { return HasNetwork() && directory_.minor >= kMinorOfRankNumbers; }

  // Elastic frameworks number the ranks of a process again.
  void FindLatestNumbers() {
    ProcessSnapshot& process = *result_.process;
    if (directory_.rank_numbers_process) return;
    process.numbers = NumbersOf(process);
    int64_t latest_ns = 0;
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.is_overflow || communicator.created_realtime_ns < latest_ns) continue;
      latest_ns = communicator.created_realtime_ns;
      process.numbers = communicator.numbers;
    }
  }

  void NoteLife(int64_t realtime_ns) {
    result_.last_sign_of_life_realtime_ns =
        std::max(result_.last_sign_of_life_realtime_ns, realtime_ns);
  }
  // Takes a time of the writer's clock; the result is of ours.
  void NoteStaleAt(uint64_t monotonic_ns) {
    if (monotonic_ns == kNever) return;
    result_.stale_at_ns =
        std::min(result_.stale_at_ns, monotonic_ns - static_cast<uint64_t>(terms_.clock_offset_ns));
  }
  void NoteLatest(uint64_t monotonic_ns) {
    const uint64_t now_ns = NowNs();
    if (monotonic_ns > now_ns) result_.ahead_ns = std::max(result_.ahead_ns, monotonic_ns - now_ns);
  }

  using Entries = std::array<InFlightEntry, layout::kInFlightEntries>;

  const SegmentSource& source_;
  SlotDirectory directory_;
  const ReadTerms& terms_;
  const Moment now_;  // by the writer's clock
  SegmentRead result_;
  uint64_t largest_room_ = 1;               // of a communicator, also of one that found none
  std::unique_ptr<CommunicatorSlot> slot_;  // kept from slot to slot; about 100 KiB
  std::unique_ptr<Entries> entries_after_;
};

}  // namespace

// The memory of a communicator, in communicators of the usual size.
uint64_t RoomOf(const CommunicatorSnapshot& communicator) {
  uint64_t bytes = communicator.in_flight.size() * sizeof(InFlightOperation);
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (!communicator.functions.IsInUse(i)) continue;
    bytes += sizeof(FunctionSnapshot) + BytesOfDurationsBySize(communicator.functions[i]);
  }
  return std::max<uint64_t>((bytes + kCommunicatorBytes - 1) / kCommunicatorBytes, 1);
}

SegmentRead ReadSegment(const SegmentSource& source, SlotDirectory directory,
                        const ReadTerms& terms) {
  return SegmentReading(source, std::move(directory), terms).Read();
}

SegmentRead ReadSegment(const SegmentSource& source, const ReadTerms& terms) {
  return ReadSegment(source, ReadSlotDirectory(source, terms.slots_left), terms);
}

}  // namespace nccl_exporter::collector
