// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/network_timer.h"

namespace nccl_exporter::plugin {

void NetworkTimer::Open(layout::CommunicatorSlot* slot, layout::SegmentHeader* header,
                        NetworkWindows* windows) {
  if (slot_ == nullptr) {
    slot_ = slot;  // for good: late events of a former communicator may be reading it
    header_ = header;
  }
  StoreRelaxed(windows_, windows);
  is_open_.store(true);
  BeginLaunch();
  StoreRelaxed(slot->network.share_ppm, windows->SharePpm());
}

void NetworkTimer::Finalize() {
  is_open_.store(false);
  for (Place& place : places_) {
    const uint64_t state = place.state.load();
    if ((state & kUsed) != 0 && CompareExchange(place.state, state, state & ~kUsed))
      CountLoss(Loss::kNetworkIncomplete);
  }
}

uint32_t NetworkTimer::Start(bool is_send, uint64_t ticket) {
  constexpr int kHighBits = kTicketShift - kSendShift - 1;  // of the number, above the place
  constexpr uint64_t kAboveMask = (uint64_t{1} << (kTicketBits + kHighBits)) - 1;
  const uint64_t number = AddRelaxed(next_, 1);
  const uint64_t high = number / kPlaces;
  const uint64_t above =
      ticket == kNoTicket ? high
                          : (ticket & kTicketMask) << kHighBits | (high & ((1u << kHighBits) - 1));
  return static_cast<uint32_t>((above & kAboveMask) << (kSendShift + 1) |
                               (is_send ? uint64_t{1} << kSendShift : 0) | (number & kPlaceMask));
}

// The first step takes the place. An operation that is refused counts once, when it stops: a
// receive's start is repeated. Of several that are refused in one place only the latest counts.
bool NetworkTimer::Take(Place& place, uint32_t key) {
  const uint64_t used = UsedState(key);
  uint64_t state = LoadRelaxed(place.state);
  if (state == (used & ~kUsed) && state != 0) return CountLoss(Loss::kStaleHandle), false;
  if ((state & kUsed) != 0 || !place.state.compare_exchange_strong(state, used))
    return StoreRelaxed(place.refused, used), false;
  if (!is_open_.load() && CompareExchange(place.state, used, used & ~kUsed))
    return CountLoss(Loss::kStaleHandle), false;
  place.operation.Begin(IsSend(key));
  return true;
}

void NetworkTimer::Stop(uint32_t key) {
  Place& place = PlaceOf(key);
  const NetworkOperation& operation = place.operation;
  const uint64_t used = UsedState(key);
  const uint64_t state = LoadRelaxed(place.state);
  if (state != used) {
    // Else it had no steps: it was called while their bit was off.
    if (LoadRelaxed(place.refused) == used) CountLoss(Loss::kNetworkFull);
    if (state == (used & ~kUsed) && state != 0) CountLoss(Loss::kStaleHandle);
    return;
  }
  // Before the place is free: another thread may take it then.
  const NetworkTimes times = operation.Times();
  const bool is_broken = operation.IsBroken();
  const bool is_under_way = operation.IsUnderWay();
  if (!CompareExchange(place.state, used, used & ~kUsed)) return CountLoss(Loss::kStaleHandle);
  if (is_broken) return CountLoss(Loss::kNetworkStepMismatch);
  if (is_under_way) return CountLoss(Loss::kNetworkIncomplete);
  layout::NetworkDirectionBlock& counters = slot_->network.directions[static_cast<size_t>(
      IsSend(key) ? NetworkDirection::kSend : NetworkDirection::kRecv)];
  for (size_t i = 0; i < kNetworkStateCount; ++i) {
    if (times.state_ns[i] != 0) AddRelaxed(counters.wait_ns[i], times.state_ns[i]);
  }
  AddRelaxed(counters.bytes, times.bytes);
  AddRelaxed(counters.operations, 1);
}

// Up to 2.26 a send without credit shows on its operation only, and so do bytes and ends of steps.
void NetworkTimer::NoteOperationState(uint32_t key, int state, uint64_t sum_of_bytes, int steps) {
  constexpr int kSendRemFifoWait = 1, kRecvDone = 7;
  Place& place = PlaceOf(key);
  if (LoadRelaxed(place.state) != UsedState(key)) return;  // its steps were refused
  place.operation.NoteSumOfBytes(sum_of_bytes);
  if (steps < 1) return;
  if (state == kRecvDone) return place.operation.StopStepsBefore(static_cast<uint32_t>(steps));
  if (state != kSendRemFifoWait) return;
  if (!IsSend(key)) return place.operation.Break();
  const auto step = static_cast<uint32_t>(steps - 1);
  place.operation.Enter(NetworkOperation::PlaceOf(step), NetworkOperation::TagOf(step),
                        step_phase::kSendPeer);
}

}  // namespace nccl_exporter::plugin
