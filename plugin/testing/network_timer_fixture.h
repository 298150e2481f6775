// SPDX-License-Identifier: Apache-2.0
// A network timer with a slot and a header to count in, and windows that are always open.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "plugin/network/network_timer.h"
#include "plugin/testing/scripted_clock.h"

namespace nccl_exporter::plugin {

inline constexpr int kSendWait = 9, kRecvWait = 10, kRecvFlushWait = 11, kRecvGpuWait = 12,
                     kPeerWait = 20;

class NetworkTimerTest : public testing::Test {
 protected:
  NetworkTimerTest() {
    windows_.Open(&mask_, 7, 16, nullptr, {.period_ns = 1000, .share_ppm = kWholeDutyPpm});
    timer_->Open(slot_.get(), header_.get(), &windows_);
  }
  static void Advance(uint64_t ns) { ScriptedClock::now_ns += ns; }
  uint32_t StepOf(uint32_t key, uint32_t step) {
    return static_cast<uint32_t>(timer_->StartStep(key, step));
  }
  // 10 ns in each state.
  void PlayStep(uint32_t key, bool is_send, uint32_t step) {
    const uint32_t number = StepOf(key, step);
    Advance(10);
    if (is_send) {
      timer_->NoteStepState(number, kPeerWait, 0);
      Advance(10);
      timer_->NoteStepState(number, kPeerWait, 0);
      timer_->NoteStepState(number, kSendWait, 1000);
    } else {
      timer_->StartStep(key, step);
      timer_->NoteStepState(number, kRecvWait, 7);
      Advance(10);
      timer_->NoteStepState(number, kRecvFlushWait, 1000);
      Advance(10);
      timer_->NoteStepState(number, kRecvGpuWait, 7);
    }
    Advance(10);
    timer_->StopStep(number);
  }
  uint64_t Waited(NetworkDirection direction, NetworkState state) const {
    return LoadRelaxed(Block(direction).wait_ns[static_cast<size_t>(state)]);
  }
  const layout::NetworkDirectionBlock& Block(NetworkDirection direction) const {
    return slot_->network.directions[static_cast<size_t>(direction)];
  }
  uint64_t Lost(Loss loss) const { return LoadRelaxed(header_->losses[static_cast<size_t>(loss)]); }
  uint64_t Operations() const {
    return LoadRelaxed(Block(NetworkDirection::kSend).operations) +
           LoadRelaxed(Block(NetworkDirection::kRecv).operations);
  }

  int mask_ = 7;
  NetworkWindows windows_{};
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<NetworkTimer> timer_ = std::make_unique<NetworkTimer>();
};

}  // namespace nccl_exporter::plugin
