// SPDX-License-Identifier: Apache-2.0
// Fixture of tests that play a communicator by its callbacks.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "plugin/operations/communicator.h"

namespace nccl_exporter::plugin {

// A communicator of 8 ranks over a slot in ordinary memory.
class CommunicatorTest : public testing::Test {
 protected:
  void Open(TimingSource source) {
    communicator_->Open({source, 2, 8, slot_.get(), header_.get()});
  }

  OperationStart AllReduce(uint64_t bytes, uint32_t channels, uint64_t launch = 0) {
    OperationStart start;
    start.function = Function::kAllReduce;
    start.message_bytes = bytes;
    start.channels = channels;
    start.channels_are_exact = channels != 0;
    start.launch = launch;
    start.call_ns = NowNs();
    return start;
  }
  OperationStart PointToPoint(Function function, uint64_t bytes, uint32_t channels,
                              uint64_t launch = 0) {
    OperationStart start = AllReduce(bytes, channels, launch);
    start.function = function;
    start.channels_are_exact = false;
    return start;
  }

  void RunChannel(uint64_t ticket, uint32_t channel, uint64_t start_ns, uint64_t stop_ns) {
    communicator_->StartChannel(ticket, channel, start_ns);
    communicator_->StampChannel(ticket, channel, stop_ns);
    communicator_->StopChannel(ticket, channel);
  }

  // One channel that runs for 1 us, after all that ran before: by the GPU's clock, which is far
  // faster than the CPU's here, so that no times are shown to be older than a call.
  void RunNext(uint64_t ticket, uint32_t channel = 0) {
    gpu_ns_ += 10'000'000;
    RunChannel(ticket, channel, gpu_ns_, gpu_ns_ + 1000);
  }

  layout::FunctionBlock& Block(Function function) {
    return slot_->functions[static_cast<size_t>(function)];
  }
  uint64_t Operations(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).started.operations) sum += LoadRelaxed(word);
    return sum;
  }
  uint64_t Timed(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).timed.timed_operations) sum += LoadRelaxed(word);
    return sum;
  }
  uint64_t BusyNs(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).timed.busy_ns) sum += LoadRelaxed(word);
    return sum;
  }
  // Operations in the histogram of a function's size class; 0 if there is none.
  uint64_t InSizeHistogram(Function function, int size_class) {
    uint64_t sum = 0;
    for (const layout::SizeHistogram& histogram : slot_->size_histograms) {
      if (LoadRelaxed(histogram.owner) != layout::SizeHistogramOwner(function, size_class))
        continue;
      for (const AtomicU64& word : histogram.duration) sum += LoadRelaxed(word);
    }
    return sum;
  }
  uint64_t Completed(Function function) { return LoadRelaxed(Block(function).completed); }
  uint64_t BandwidthCount(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).bandwidth) sum += LoadRelaxed(word);
    return sum;
  }
  uint64_t InFlight() {
    uint64_t sum = 0;
    for (const layout::InFlightEntry& entry : slot_->in_flight)
      sum += LoadRelaxed(entry.ticket) != 0;
    return sum;
  }
  uint64_t Losses(Loss loss) { return LoadRelaxed(header_->losses[static_cast<size_t>(loss)]); }
  uint64_t AllLosses() {
    uint64_t sum = 0;
    for (const AtomicU64& word : header_->losses) sum += LoadRelaxed(word);
    return sum;
  }

  uint64_t gpu_ns_ = 1'000'000;
  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<Communicator> communicator_ = std::make_unique<Communicator>();
};

}  // namespace nccl_exporter::plugin
