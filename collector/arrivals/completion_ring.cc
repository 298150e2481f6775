// SPDX-License-Identifier: Apache-2.0
// Copies of the ring, piece by piece, and as a whole where it has gone round.
#include "collector/arrivals/completion_ring.h"

#include <algorithm>
#include <memory>

namespace nccl_exporter::collector {
namespace {

constexpr size_t kRingEntries = layout::kCompletionEntries;

// Entries of one copy: what 8 ranks at 10,000 operations a second bring in a period, in four
// pieces.
constexpr size_t kPieceEntries = 64;

// A writer cannot bring more between two looks; a number beyond it is made up.
constexpr uint64_t kMostLost = 1 << 20;

template <typename Entry>
uint64_t WordAt(const Entry& entry, size_t offset) {
  return entry[offset / sizeof(uint64_t)];
}

template <typename Entry>
uint64_t TicketOf(const Entry& entry) {
  return WordAt(entry, offsetof(layout::CompletionEntry, ticket));
}

}  // namespace

CompletedOperation CompletionRing::OperationOf(const Entry& entry) const {
  return {
      .ticket = TicketOf(entry),
      .function_and_sequence =
          WordAt(entry, offsetof(layout::CompletionEntry, function_and_sequence)),
      .call_ns = WordAt(entry, offsetof(layout::CompletionEntry, call_ns)) - clock_offset_ns_,
      .start_ns = WordAt(entry, offsetof(layout::CompletionEntry, start_ns)),
      .stop_ns = WordAt(entry, offsetof(layout::CompletionEntry, stop_ns)),
      .delivered_ns =
          WordAt(entry, offsetof(layout::CompletionEntry, delivered_ns)) - clock_offset_ns_,
      .bytes = WordAt(entry, offsetof(layout::CompletionEntry, bytes)),
      .members = std::max<uint64_t>(WordAt(entry, offsetof(layout::CompletionEntry, members)), 1)};
}

bool CompletionRing::Copy(const SegmentSource& source, size_t first, std::span<Entry> into) const {
  const std::span<std::byte> bytes = std::as_writable_bytes(into);
  const uint64_t ring = slot_offset_ + offsetof(layout::CommunicatorSlot, completions);
  return source.Read(ring + first * sizeof(Entry), bytes) == static_cast<ssize_t>(bytes.size());
}

// The first ticket is in the first entry, which may just be written again, but then the second is
// not.
bool CompletionRing::HasBegun(const SegmentSource& source) const {
  std::array<Entry, 2> entries{};
  return Copy(source, 0, entries) && (TicketOf(entries[0]) != 0 || TicketOf(entries[1]) != 0);
}

uint64_t CompletionRing::Read(const SegmentSource& source,
                              std::vector<CompletedOperation>& operations) {
  if (next_ == 0) return TakeAll(source, operations);
  std::array<Entry, kPieceEntries> piece, again;
  for (size_t read = 0; read < kRingEntries;) {
    const size_t first = (next_ - 1) % kRingEntries;
    const size_t length = std::min(kPieceEntries, kRingEntries - first);
    if (!Copy(source, first, std::span(piece).first(length))) return 0;
    size_t due = 0;
    while (due < length && TicketOf(piece[due]) == next_ + due) ++due;
    if (due != 0 && !Copy(source, first, std::span(again).first(due))) return 0;
    size_t taken = 0;
    while (taken < due && piece[taken] == again[taken])
      operations.push_back(OperationOf(piece[taken++]));
    next_ += taken;
    read += taken;
    if (taken == length) continue;
    const bool has_gone_round = taken < due || TicketOf(piece[taken]) > next_;
    return has_gone_round ? TakeAll(source, operations) : 0;
  }
  return 0;
}

std::optional<uint64_t> CompletionRing::ReadOf(uint64_t generation, const SegmentSource& source,
                                               std::vector<CompletedOperation>& operations) {
  const uint64_t lost = Read(source, operations);
  if (operations.empty() && lost == 0) return 0;
  uint64_t state = 0;
  const bool is_read = source.Read(slot_offset_, std::as_writable_bytes(std::span(&state, 1))) ==
                       static_cast<ssize_t>(sizeof(state));
  return is_read && layout::GenerationOf(state) == generation ? std::optional(lost) : std::nullopt;
}

uint64_t CompletionRing::TakeAll(const SegmentSource& source,
                                 std::vector<CompletedOperation>& operations) {
  using Ring = std::array<Entry, kRingEntries>;
  const auto ring = std::make_unique<Ring>(), again = std::make_unique<Ring>();
  if (!Copy(source, 0, *ring) || !Copy(source, 0, *again)) return 0;
  std::vector<const Entry*> found;
  uint64_t newest = 0;
  for (size_t i = 0; i < kRingEntries; ++i) {
    const Entry& entry = (*ring)[i];
    const uint64_t ticket = TicketOf(entry);
    const bool is_whole = ticket != 0 && (ticket - 1) % kRingEntries == i && entry == (*again)[i];
    if (!is_whole || ticket < next_) continue;
    found.push_back(&entry);
    newest = std::max(newest, ticket);
  }
  if (found.empty()) return 0;
  std::erase_if(found,
                [&](const Entry* entry) { return newest - TicketOf(*entry) >= kRingEntries; });
  std::ranges::sort(found, {}, [](const Entry* entry) { return TicketOf(*entry); });
  for (const Entry* entry : found) operations.push_back(OperationOf(*entry));
  const uint64_t lost = next_ == 0 ? 0 : newest - next_ + 1 - found.size();
  next_ = newest + 1;
  return std::min(lost, kMostLost);
}

}  // namespace nccl_exporter::collector
