// SPDX-License-Identifier: Apache-2.0
// Time of one proxy operation, shared out among what its steps wait for. The progress thread that
// has the operation.
//
// Up to 8 steps of an operation are under way at a time (NCCL_STEPS), and end in order. The oldest
// that has not ended, the head, has the time: at each change of its state, and at its end, the time
// since the last change goes to the state that it was in. So the states add up to the time from the
// first step's start to the last one's end, exactly. The time between two heads, a poll of the
// progress thread, goes to the first state of the later one that has a length.
//
// States, by 2.30.7 src/transport/net.cc (sendProxyProgress, recvProxyProgress):
//   send     start, 8   kGpu      the buffer is the GPU's, which writes the data
//            20         kPeer     isend takes no request: the receiver has given no credit.
//                                 Repeated at every poll. 2.24 to 2.26 report it on the operation
//                                 (SendRemFifoWait) and not on the step
//            9          kNetwork  the adapter has the data
//            stop                 the adapter is done
//   receive  start      kPeer     not posted yet; repeated at every poll until irecv takes it. The
//                                 rank's own kernel has not begun (registered buffers), an
//                                 operation of the same group waits for the GPU, or the network
//                                 plugin refuses. Readers add it to kGpu
//            10         kNetwork  posted: the sender and the wire
//            11         kFlush    received, and flushed to the GPU's memory
//            12         kGpu      the GPU reads the buffer
//            stop                 the GPU has freed it. 2.24 to 2.26 stop one step of those that
//                                 a poll finds freed, and report all on the operation (RecvDone)
//
// The clock is read only where the head changes its state. A state that ends in the poll in which
// it began has no length, and no reading: 20 that comes once, a receive that is posted at its first
// start. Every field is atomic: a stale handle in another progress thread finds valid memory, and
// at worst spoils one operation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/segment/atomics.h"
#include "proto/network_state.h"

namespace nccl_exporter::plugin {

struct NetworkTimes {
  std::array<uint64_t, kNetworkStateCount> state_ns{};  // by NetworkState
  uint64_t bytes = 0;
};

// Progress of a step: the states of its direction in their order.
namespace step_phase {
inline constexpr uint32_t kFirst = 1, kSendPeer = 2, kSendNetwork = 3, kRecvNetwork = 2,
                          kRecvFlush = 3, kRecvGpu = 4, kCount = 4;
}  // namespace step_phase

class NetworkOperation {
 public:
  // NCCL_STEPS.
  static constexpr uint32_t kSteps = 8;
  // A step is named by its place, which is its number modulo 8, and by a tag.
  static constexpr uint32_t kTags = 16;
  static constexpr uint32_t PlaceOf(uint32_t step) { return step % kSteps; }
  static constexpr uint32_t TagOf(uint32_t step) { return step / kSteps % kTags; }

  void Begin(bool is_send) {
    Zero(steps_, since_, bytes_, head_, is_broken_);
    Zero(sums_);
    StoreRelaxed(first_bytes_, kNoBytes);
    StoreRelaxed(is_send_, is_send);
  }

  // False if the step does not follow the ones before: nothing of the operation counts then. A
  // start that is repeated before the step goes on is the same start.
  bool StartStep(uint32_t step) {
    const uint64_t steps = LoadRelaxed(steps_);
    const uint32_t place = PlaceOf(step);
    const uint64_t first = step_phase::kFirst | uint64_t{TagOf(step)} << kTagShift;
    const uint64_t present = ByteIn(steps, place);
    if ((present & ~kRepeated) == first) {
      if ((present & kRepeated) == 0) StoreRelaxed(steps_, steps | kRepeated << place * 8);
      return true;
    }
    const bool follows = steps == 0 ? place == Head() : ByteIn(steps, (place - 1) % kSteps) != 0;
    if (present != 0 || !follows || IsBroken()) return Break(), false;
    StoreRelaxed(steps_, steps | first << place * 8);
    if (LoadRelaxed(since_) == 0) StoreRelaxed(since_, NowNs());
    return true;
  }

  // The step in a place has come to a phase. False if there is no such step.
  bool Enter(uint32_t place, uint32_t tag, uint32_t phase) {
    const uint64_t steps = LoadRelaxed(steps_);
    const uint64_t present = ByteIn(steps, place);
    if (present == 0 || present >> kTagShift != tag) return false;
    const uint64_t present_phase = present & kPhaseMask;
    if (phase <= present_phase) {
      if (phase == present_phase && (present & kRepeated) == 0)
        StoreRelaxed(steps_, steps | kRepeated << place * 8);
      return true;
    }
    // The phase that has no length unless it is reported twice.
    const uint64_t short_phase = LoadRelaxed(is_send_) ? step_phase::kSendPeer : step_phase::kFirst;
    const bool has_length = (present & (kPhaseMask | kRepeated)) != short_phase;
    if (place == Head() && has_length) Charge(present_phase);
    const uint64_t change = present ^ (uint64_t{tag} << kTagShift | phase);
    StoreRelaxed(steps_, steps ^ change << place * 8);
    return true;
  }

  // False if there is no such step. Where an older one is under way nothing counts.
  bool StopStep(uint32_t place, uint32_t tag) {
    const uint64_t steps = LoadRelaxed(steps_);
    const uint64_t present = ByteIn(steps, place);
    if (present == 0 || present >> kTagShift != tag) return false;
    if (place != Head()) return Break(), true;
    Charge(present & kPhaseMask);
    StoreRelaxed(steps_, steps ^ present << place * 8);
    StoreRelaxed(head_, static_cast<uint8_t>(PlaceOf(place + 1)));
    return true;
  }
  // So many steps have ended. Up to 2.26 NCCL stops only the first of those that it finds ended in
  // one poll (2.26.6 transport/net.cc recvProxyProgress takes `doneStepId` before its loop). Stops
  // those that it leaves.
  void StopStepsBefore(uint32_t count) {
    if (count == 0) return;
    for (uint32_t i = 0; i < kSteps; ++i) {
      const uint64_t present = ByteIn(LoadRelaxed(steps_), Head());
      const auto tag = static_cast<uint32_t>(present >> kTagShift);
      const uint32_t ahead = (count - 1 - (tag * kSteps + Head())) % (kTags * kSteps);
      if (present == 0 || ahead >= kSteps) return;
      StopStep(Head(), tag);
    }
  }
  void Break() { StoreRelaxed(is_broken_, true); }

  void AddBytes(uint64_t bytes) { ExclusiveAdd(bytes_, bytes); }
  // Notes the sum of all bytes that the operation's arguments have carried so far, as NCCL up to
  // 2.26 counts. NCCL never sets the sum to 0, so the first one belongs to other operations.
  void NoteSumOfBytes(uint64_t sum) {
    if (LoadRelaxed(first_bytes_) == kNoBytes) StoreRelaxed(first_bytes_, sum);
    if (sum < LoadRelaxed(first_bytes_)) return Break();
    StoreRelaxed(bytes_, sum - LoadRelaxed(first_bytes_));
  }

  bool IsUnderWay() const { return LoadRelaxed(steps_) != 0; }
  bool IsBroken() const { return LoadRelaxed(is_broken_); }
  NetworkTimes Times() const {
    NetworkTimes times{.bytes = LoadRelaxed(bytes_)};
    for (size_t i = 0; i < sums_.size(); ++i) times.state_ns[i] = LoadRelaxed(sums_[i]);
    return times;
  }

 private:
  using States = std::array<NetworkState, step_phase::kCount>;
  static constexpr States kSendStates{NetworkState::kGpu, NetworkState::kPeer,
                                      NetworkState::kNetwork, NetworkState::kFlush};
  static constexpr States kRecvStates{NetworkState::kPeer, NetworkState::kNetwork,
                                      NetworkState::kFlush, NetworkState::kGpu};

  // A step is a byte: its phase from the lowest bit on, whether it was reported again, its tag. 0:
  // no step is under way.
  static constexpr uint64_t kPhaseMask = 7;
  static constexpr uint64_t kRepeated = 8;
  static constexpr int kTagShift = 4;
  static constexpr uint64_t kNoBytes = ~uint64_t{0};

  static uint64_t ByteIn(uint64_t steps, uint32_t place) { return steps >> place * 8 & 0xff; }
  uint32_t Head() const { return LoadRelaxed(head_); }
  void Charge(uint64_t phase) {
    const uint64_t now = NowNs();
    const uint64_t since = LoadRelaxed(since_);
    if (now <= since) return;
    const States& states = LoadRelaxed(is_send_) ? kSendStates : kRecvStates;
    const NetworkState state = states[phase - step_phase::kFirst];
    ExclusiveAdd(sums_[static_cast<size_t>(state)], now - since);
    StoreRelaxed(since_, now);
  }

  AtomicU64 steps_{0};  // by place
  AtomicU64 since_{0};  // CLOCK_MONOTONIC of the latest change of the head; 0: no step so far
  std::array<AtomicU64, kNetworkStateCount> sums_{};  // nanoseconds by NetworkState
  AtomicU64 bytes_{0};
  AtomicU64 first_bytes_{0};
  std::atomic<uint8_t> head_{0};  // place of the oldest step, or of the next one
  std::atomic<bool> is_send_{false};
  std::atomic<bool> is_broken_{false};
};

}  // namespace nccl_exporter::plugin
