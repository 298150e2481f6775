// SPDX-License-Identifier: Apache-2.0
// Timing of the network operations of communicators: which ones, and in which windows. One for each
// copy of libnccl. Under the process's lock, but for KeepOpen().
#pragma once

#include <array>
#include <cstdint>

#include "plugin/network/network_timer.h"
#include "plugin/network/network_windows.h"
#include "plugin/operations/communicator.h"
#include "plugin/options.h"
#include "plugin/segment/own_file.h"

namespace nccl_exporter::plugin {

// All zeros is its first state, as in a forked child.
class NetworkTiming {
 public:
  // Once. With a share of 0 nothing is timed.
  void Open(const Options& options) {
    windows_ = NetworkWindows::OfShare(options.network_share_ppm, options.network_period_ns);
  }

  // A communicator whose mask has been stored. Without memory, or with more copies of libnccl than
  // there is room for, it is not timed: its slot shows a share of 0.
  void Join(Communicator& communicator, int* mask, int own_mask, layout::CommunicatorSlot* slot,
            layout::SegmentHeader* header) {
    if (windows_.window_ns == 0) return;
    NetworkWindows* const windows = WindowsOf(mask, own_mask);
    if (windows == nullptr) return;
    if (communicator.network_room() == nullptr)
      communicator.SetNetworkRoom(MakeMapped<NetworkTimer>());
    NetworkTimer* const timer = communicator.network_room();
    if (timer == nullptr) return;
    windows->Join();
    timer->Open(slot, header, windows, &communicator.progress_lane());
    communicator.SetNetwork(timer);
  }
  // It is finalized.
  static void Leave(Communicator& communicator) {
    NetworkTimer* const timer = communicator.network();
    if (timer == nullptr) return;
    communicator.SetNetwork(nullptr);
    timer->Finalize();
    timer->windows().Leave();
  }
  // Any thread: operations are timed until then (CLOCK_REALTIME).
  void KeepOpen(uint64_t until_realtime_ns) {
    for (NetworkWindows& windows : libraries_) windows.KeepOpen(until_realtime_ns);
  }
  // An init has stored the mask, without the network's bit.
  void RestoreBit(const int* mask) {
    for (NetworkWindows& windows : libraries_) {
      if (windows.IsInUse() && windows.Serves(mask)) windows.StoreBit();
    }
  }

 private:
  // A framework's own copy of libnccl, and the system's, twice.
  static constexpr size_t kMostLibraries = 4;

  NetworkWindows* WindowsOf(int* mask, const int own_mask) {
    NetworkWindows* free = nullptr;
    for (NetworkWindows& windows : libraries_) {
      if (windows.IsInUse() && windows.Serves(mask)) return &windows;
      if (!windows.IsInUse() && free == nullptr) free = &windows;
    }
    if (free != nullptr) free->Open(mask, own_mask, windows_);
    return free;
  }

  TimeWindows windows_;
  std::array<NetworkWindows, kMostLibraries> libraries_;
};

}  // namespace nccl_exporter::plugin
