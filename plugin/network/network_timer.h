// SPDX-License-Identifier: Apache-2.0
// Network time of one communicator: its proxy operations that have steps under way, and where their
// times are counted when they end. Any thread; no waiting, no allocation, no system call.
//
// NCCL's progress thread calls: one for all operations of a communicator, as a rule. In a process
// with several GPUs another GPU's thread may have some of them (PXN). So:
//   1. The first step of an operation takes a place, by a compare-and-swap from a free state to a
//      used one with the operation's key. Then only the thread that NCCL gave the operation to
//      writes its fields, without locked instructions.
//   2. Every call compares the key, so an operation of the past is refused. Not seen is a handle
//      that is older by a whole wrap: 2^14 operations of the communicator for a proxy operation,
//      2^13 for a step, if their proxy operations have the same number modulo 2^11.
//   3. The end is a compare-and-swap from that used state to the free one with the same key. The
//      winner alone adds the times to the slot, by locked additions.
//   4. Finalize ends all by the same step. A thread that passed 2 just before writes fields that
//      nobody reads. A thread that takes a place at this moment looks at is_open_ afterwards, and
//      Finalize stores it before it looks at the places, in one order with these two: one of the
//      two ends the operation, so no place stays taken.
//
// An operation takes no place before its first step: NCCL announces operations long before they
// begin (2.30.7 proxy.cc ncclProxyOpToArgs), hundreds where the host runs ahead, and also those of
// transports that have no steps, which it never stops.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>

#include "plugin/network/network_operation.h"
#include "plugin/network/network_windows.h"
#include "plugin/segment/atomics.h"
#include "proto/loss.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

class NetworkTimer {
 public:
  // Proxy operations of a communicator whose steps can be timed at a time. An AlltoAll over 32
  // nodes of 8 GPUs has 496. The operation that is 512 after another has the same place.
  static constexpr uint32_t kPlaces = 512;
  // Low bits of an operation's ticket that a key holds.
  static constexpr int kTicketBits = 14;
  static constexpr uint32_t kTicketMask = (1u << kTicketBits) - 1;
  // No step: it is refused.
  static constexpr uint64_t kNone = ~uint64_t{0};

  // Under the process's lock, while no event can carry the new context yet. All but `windows` are
  // the same at every call.
  void Open(layout::CommunicatorSlot* slot, layout::SegmentHeader* header, NetworkWindows* windows);
  // Gives up on what is under way. Under the lock.
  void Finalize();

  NetworkWindows& windows() { return *LoadRelaxed(windows_); }

  // NCCL has read the event mask for all calls of a launch that is announced now.
  void BeginLaunch() { StoreRelaxed(is_launch_taken_, windows().IsOpen()); }
  // Whether the operations of this launch that NCCL asks about are timed. NCCL asks about a call if
  // its bit was set then, and about each replay of a graph that was captured with the bit: those
  // that are launched in a window are taken. What may be a replay counts as one.
  bool Takes(bool is_known_call) {
    return (is_known_call && !windows().IsHeld()) || LoadRelaxed(is_launch_taken_);
  }

  // The start of a proxy operation: its key, 26 bits. `ticket`: of the operation; kNoTicket: it is
  // not known.
  static constexpr uint64_t kNoTicket = ~uint64_t{0};
  uint32_t Start(bool is_send, uint64_t ticket);
  static uint32_t TicketOf(uint32_t key) { return key >> kTicketShift & kTicketMask; }
  // Its end: its times are counted if all its steps were seen.
  void Stop(uint32_t key);
  // A state of the operation that says something about its steps (API v2 and v3). `steps`: how many
  // have come so far.
  void NoteOperationState(uint32_t key, int state, uint64_t sum_of_bytes, int steps);

  // The start of a step: its number, 32 bits, or kNone.
  uint64_t StartStep(uint32_t key, uint32_t step);
  // The step has come to a state, as NCCL numbers them. `bytes` is read where a state has them.
  void NoteStepState(uint32_t number, int state, uint64_t bytes);
  void StopStep(uint32_t number);

 private:
  // A key: ticket (14 bits) | high bits of the operation's number (2) | whether it sends (1) | low
  // bits of the number, the place (9). The number of a step: the 16 bits of the key above the
  // place | place (9) | tag and place of the step (7).
  static constexpr int kTicketShift = 12, kSendShift = 9, kStepBits = 7, kGenerationShift = 16;
  static constexpr uint32_t kGenerationMask = 0xffff, kPlaceMask = kPlaces - 1;
  static_assert(kPlaces == 1u << kSendShift);
  static_assert(NetworkOperation::kTags * NetworkOperation::kSteps == 1u << kStepBits);

  struct alignas(64) Place {
    AtomicU64 state{0};    // key << 1 | whether it is used
    AtomicU64 refused{0};  // key << 1 | kUsed of the latest operation that found it used
    NetworkOperation operation;
  };
  static_assert(sizeof(Place) == 128);
  static constexpr uint64_t kUsed = 1;

  static uint64_t UsedState(uint32_t key) { return uint64_t{key} << 1 | kUsed; }
  static bool IsSend(uint32_t key) { return (key >> kSendShift & 1) != 0; }
  static bool IsStepOfSend(uint32_t number) { return (number >> kGenerationShift & 1) != 0; }
  static uint32_t TagOf(uint32_t number) {
    return number / NetworkOperation::kSteps % NetworkOperation::kTags;
  }
  Place& PlaceOf(uint32_t key) { return places_[key & kPlaceMask]; }
  // The operation whose step this is, or nullptr, which is counted.
  NetworkOperation* FindStep(uint32_t number);
  [[gnu::noinline]] bool Take(Place& place, uint32_t key);
  [[gnu::cold, gnu::noinline]] void CountLoss(Loss loss) {
    AddRelaxed(header_->losses[static_cast<uint8_t>(loss)], 1);
  }

  layout::CommunicatorSlot* slot_ = nullptr;
  layout::SegmentHeader* header_ = nullptr;
  std::atomic<NetworkWindows*> windows_{nullptr};
  std::atomic<bool> is_open_{false};  // sequentially consistent
  std::atomic<bool> is_launch_taken_{false};
  AtomicU64 next_{1};  // number of the next proxy operation
  std::array<Place, kPlaces> places_;
};

// Steps are the hottest callbacks of the plugin, and inline.

inline uint64_t NetworkTimer::StartStep(uint32_t key, uint32_t step) {
  Place& place = PlaceOf(key);
  if (LoadRelaxed(place.state) != UsedState(key) && !Take(place, key)) return kNone;
  if (!place.operation.StartStep(step)) return kNone;
  return (key >> kSendShift & kGenerationMask) << kGenerationShift |
         (key & kPlaceMask) << kStepBits |
         NetworkOperation::TagOf(step) * NetworkOperation::kSteps | NetworkOperation::PlaceOf(step);
}

inline NetworkOperation* NetworkTimer::FindStep(uint32_t number) {
  Place& place = places_[number >> kStepBits & kPlaceMask];
  const uint64_t state = LoadRelaxed(place.state);
  const bool is_current = (state & kUsed) != 0 && (state >> (kSendShift + 1) & kGenerationMask) ==
                                                      number >> kGenerationShift;
  if (is_current) return &place.operation;
  return CountLoss(Loss::kStaleHandle), nullptr;
}

inline void NetworkTimer::NoteStepState(uint32_t number, int state, uint64_t bytes) {
  NetworkOperation* const operation = FindStep(number);
  if (operation == nullptr) return;
  // By state, from 9 on (network_operation.h): the phase of a send and that of a receive; 0: none.
  static constexpr uint8_t kPhases[][2] = {{step_phase::kSendNetwork, 0},
                                           {0, step_phase::kRecvNetwork},
                                           {0, step_phase::kRecvFlush},
                                           {0, step_phase::kRecvGpu}};
  constexpr uint32_t kFirst = 9;
  constexpr uint32_t kSendWait = 9, kRecvFlushWait = 11;
  const uint32_t row = static_cast<uint32_t>(state) - kFirst;
  const bool is_send = IsStepOfSend(number);
  const uint32_t of_peer_wait = is_send ? step_phase::kSendPeer : 0;
  const uint32_t phase = row < std::size(kPhases) ? kPhases[row][is_send ? 0 : 1] : of_peer_wait;
  if (phase == 0) return operation->Break();
  if (!operation->Enter(NetworkOperation::PlaceOf(number), TagOf(number), phase))
    return CountLoss(Loss::kStaleHandle);
  if (state == kSendWait || state == kRecvFlushWait) operation->AddBytes(bytes);
}

inline void NetworkTimer::StopStep(uint32_t number) {
  NetworkOperation* const operation = FindStep(number);
  if (operation == nullptr) return;
  if (!operation->StopStep(NetworkOperation::PlaceOf(number), TagOf(number)))
    CountLoss(Loss::kStaleHandle);
}

}  // namespace nccl_exporter::plugin
