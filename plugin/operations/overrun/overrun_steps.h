// SPDX-License-Identifier: Apache-2.0
// Fixture of tests that play a communicator behind NCCL's ring of 64 time stamps, step by step. For
// one source file of a test (virtual_time.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "plugin/operations/communicator.h"
#include "plugin/operations/overrun/virtual_time.h"

namespace nccl_exporter::plugin {

inline constexpr uint64_t kRing = 64;
inline constexpr int kAlone = 1;  // depth of a call that is made outside of groups
inline constexpr int kNested = 3;

class OverrunSteps : public testing::Test {
 protected:
  void SetUp() override {
    virtual_ns = 10'000 * kMs;
    communicator_->Open({TimingSource::kKernel, 0, 2, slot_.get(), header_.get()});
  }

  void BeginGroup(int depth) { communicator_->work_items().NoteGroup(depth); }
  uint64_t Call() {
    communicator_->NoteCall(false);
    communicator_->work_items().NoteCall(virtual_ns);
    const uint64_t called_ns = virtual_ns;
    virtual_ns += 2 * kUs;
    return called_ns;
  }
  uint64_t CallAlone() { return BeginGroup(kAlone), Call(); }

  void Capture() {
    BeginGroup(kAlone);
    communicator_->NoteCall(true);
  }

  uint64_t Announce(uint64_t launch, uint64_t call_ns, bool is_replay = false) {
    OperationStart start;
    start.function = Function::kReduceScatter;
    start.message_bytes = 1 << 20;
    start.sequence = sequence_++;
    start.call_ns = call_ns;
    start.call_is_bound = true;
    start.is_replay = is_replay;
    start.channels = 2;
    start.channels_are_exact = true;
    start.launch = launch;
    return communicator_->StartOperation(start);
  }
  uint64_t AnnounceAlone(uint64_t call_ns, bool is_replay = false) {
    const uint64_t launch = communicator_->OpenLaunch();
    const uint64_t ticket = Announce(launch, call_ns, is_replay);
    communicator_->CloseLaunch(launch);
    return ticket;
  }
  uint64_t AnnounceReplay() { return AnnounceAlone(virtual_ns, true); }

  void Start(uint64_t ticket, uint32_t channel, uint64_t start_ns) {
    communicator_->StartChannel(ticket, channel, start_ns + kGpuOffsetNs);
  }
  void Stop(uint64_t ticket, uint32_t channel, uint64_t stop_ns) {
    communicator_->StampChannel(ticket, channel, stop_ns + kGpuOffsetNs);
    communicator_->StopChannel(ticket, channel);
  }
  // With those times, now.
  void Complete(uint64_t ticket, uint64_t start_ns, uint64_t stop_ns) {
    for (uint32_t channel : {0, 1}) Start(ticket, channel, start_ns);
    for (uint32_t channel : {0, 1}) Stop(ticket, channel, stop_ns);
  }
  // So many operations that are called, run for 100 us, and are read before the next call.
  void PlayInTime(int operations) {
    for (int i = 0; i < operations; ++i) {
      const uint64_t ticket = AnnounceAlone(CallAlone());
      const uint64_t start_ns = virtual_ns + 10 * kUs;
      virtual_ns = start_ns + 105 * kUs;
      Complete(ticket, start_ns, start_ns + 100 * kUs);
    }
  }

  uint64_t Recorded() const {
    uint64_t recorded = 0;
    const auto& of_function = slot_->functions[static_cast<size_t>(Function::kReduceScatter)];
    for (const auto& operations : of_function.timed.timed_operations)
      recorded += LoadRelaxed(operations);
    return recorded;
  }
  uint64_t Losses(Loss loss) const {
    return LoadRelaxed(header_->losses[static_cast<size_t>(loss)]);
  }
  bool Drifts() const { return !communicator_->FollowsOperations(); }

  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<Communicator> communicator_ = std::make_unique<Communicator>();

 private:
  uint64_t sequence_ = 0;
};

}  // namespace nccl_exporter::plugin
