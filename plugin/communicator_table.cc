// SPDX-License-Identifier: Apache-2.0
#include "plugin/communicator_table.h"

#include <initializer_list>

#include "plugin/segment/own_file.h"

namespace nccl_exporter::plugin {

uint32_t CommunicatorTable::Claim(Segment& segment, uint64_t retention_ns, Loss* why) {
  const uint32_t overflow = overflow_slot();
  const uint32_t closed = LongestClosed();
  const bool is_over = closed != overflow && NowNs() > closed_ns_[closed] + retention_ns;
  const uint32_t unused = is_over ? overflow : FirstUnused();
  *why = unused == overflow && closed == overflow ? Loss::kNoFreeCommunicatorSlot
                                                  : Loss::kReservationFailed;
  for (const uint32_t slot : {unused, closed}) {
    if (slot != overflow && Prepare(segment, slot)) return slot;
  }
  return overflow;
}

uint32_t CommunicatorTable::FirstUnused() const {
  uint32_t slot = 0;
  while (slot < overflow_slot() && LoadRelaxed(generations_[slot]) != 0) ++slot;
  return slot;
}

uint32_t CommunicatorTable::LongestClosed() const {
  uint32_t longest = overflow_slot();
  for (uint32_t slot = 0; slot < overflow_slot(); ++slot) {
    const bool is_closed =
        LoadRelaxed(generations_[slot]) != 0 && LoadRelaxed(contexts_[slot]) == 0;
    if (is_closed && (longest == overflow_slot() || closed_ns_[slot] < closed_ns_[longest]))
      longest = slot;
  }
  return longest;
}

bool CommunicatorTable::Prepare(Segment& segment, uint32_t slot) {
  if (!segment.Reserve(slot, NextGeneration(slot))) return false;
  if (LoadRelaxed(communicators_[slot]) != nullptr) return true;
  Communicator* const communicator = MakeMapped<Communicator>();
  if (communicator == nullptr) return false;
  StoreRelease(communicators_[slot], communicator);
  return true;
}

Handle CommunicatorTable::OpenSlot(uint32_t slot) {
  const uint64_t generation = NextGeneration(slot);
  const Handle context = Handle::Of(Salt(), HandleKind::kContext, slot, generation);
  StoreRelaxed(generations_[slot], generation);
  StoreRelease(contexts_[slot], context.bits);
  return context;
}

Communicator* CommunicatorTable::FindOverflow(Handle context) const {
  if (!Fits(context, HandleKind::kContext) || !IsOverflow(context.Slot())) return nullptr;
  return LoadRelaxed(communicators_[context.Slot()]);
}

}  // namespace nccl_exporter::plugin
