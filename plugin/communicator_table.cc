// SPDX-License-Identifier: Apache-2.0
#include "plugin/communicator_table.h"

#include <sys/mman.h>

#include <new>

#include "plugin/mapped_memory.h"

namespace nccl_exporter::plugin {

uint32_t CommunicatorTable::Claim(Segment& segment, uint64_t retention_ns, bool takes_phases,
                                  Loss* why) {
  const uint32_t overflow = overflow_slot();
  const uint64_t now_ns = NowNs();
  uint32_t best = overflow;
  for (uint32_t slot = 0; slot < overflow && best == overflow; ++slot) {
    const bool is_closed =
        LoadRelaxed(generations_[slot]) != 0 && LoadRelaxed(contexts_[slot]) == 0;
    if (is_closed && now_ns > closed_ns_[slot] + retention_ns) best = slot;
  }
  for (uint32_t slot = 0; slot < overflow && best == overflow; ++slot) {
    if (LoadRelaxed(generations_[slot]) == 0) best = slot;
  }
  *why = best == overflow ? Loss::kNoFreeCommunicatorSlot : Loss::kReservationFailed;
  return best != overflow && Prepare(segment, best, takes_phases) ? best : overflow;
}

bool CommunicatorTable::Prepare(Segment& segment, uint32_t slot, bool takes_phases) {
  if (!segment.Reserve(slot, NextGeneration(slot))) return false;
  Communicator* const former = communicators_[slot].load(std::memory_order_relaxed);
  const bool needs_room = takes_phases && (former == nullptr || !former->TakesPhases());
  auto* const room = needs_room ? MakeMapped<UnconfirmedTimes::Phases>() : nullptr;
  if (needs_room && room == nullptr) return false;
  Communicator* const communicator = former != nullptr ? former : MakeMapped<Communicator>();
  if (communicator == nullptr) {
    if (room != nullptr) munmap(room, sizeof(*room));
    return false;
  }
  if (room != nullptr) communicator->TakePhases(room);
  communicators_[slot].store(communicator, std::memory_order_release);
  return true;
}

Handle CommunicatorTable::OpenSlot(uint32_t slot, bool has_identity) {
  const uint64_t generation = NextGeneration(slot);
  const Handle context = Handle::Of(Salt(), HandleKind::kContext, slot, generation);
  StoreRelaxed(generations_[slot], generation);
  StoreRelaxed(has_identity_[slot], has_identity ? 1 : 0);
  StoreRelease(contexts_[slot], context.bits);
  return context;
}

Communicator* CommunicatorTable::FindOverflow(Handle context) const {
  if (!Fits(context, HandleKind::kContext) || !IsOverflow(context.Slot())) return nullptr;
  return communicators_[context.Slot()].load(std::memory_order_relaxed);
}

}  // namespace nccl_exporter::plugin
