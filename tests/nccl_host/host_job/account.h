// SPDX-License-Identifier: Apache-2.0
// Account of what a process called and handed to its devices, for the comparison with what the
// plugin recorded: by functions as NCCL announces them, an AlltoAll as sends and receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/nccl_host/host_job/nccl_library.h"

namespace nccl_exporter::host_job {

struct AnnouncedCall {
  Communicator communicator;
  std::string function;
  size_t message_bytes;  // as nccl-tests defines them
};

// For all threads of a process. Groups and captures are the calling thread's own.
class Account {
 public:
  void Add(const AnnouncedCall& call);
  void AddRoot(Communicator communicator, int root);  // of a Broadcast
  // The operation cannot end, for a rank never calls it.
  void AddUnfinished();
  void BeginGroup();
  void EndGroup();
  // Calls in between are handed to the device by replays only.
  void BeginCapture();
  std::vector<AnnouncedCall> EndCapture();
  void AddReplay(const std::vector<AnnouncedCall>& captured);
  void Synchronize();  // all that the thread has launched has run

  // The file appears as a whole.
  void Write(const std::string& path) const;

 private:
  struct CommunicatorState {
    bool latest_call_was_captured = false, has_replays_in_flight = false;
  };

  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> calls_;
  std::map<std::pair<std::string, size_t>, uint64_t> operations_, replayed_;
  std::map<Communicator, CommunicatorState> states_;
  uint64_t groups_of_several_roots_ = 0, replays_after_eager_call_ = 0, unfinished_ = 0;
};

}  // namespace nccl_exporter::host_job
