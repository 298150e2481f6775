// SPDX-License-Identifier: Apache-2.0
// One rank of a job: its device and stream, and the calls that it makes and accounts for. For one
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/nccl_host/host_job/account.h"
#include "tests/nccl_host/host_job/nccl_library.h"

namespace nccl_exporter::host_job {

// A communicator, and the rank in it.
struct Membership {
  Communicator communicator = nullptr;
  int rank = 0, ranks = 0;
};

struct Operation {
  std::string kind;  // one of kMix, or allgatherv: a group of one Broadcast per root
  size_t bytes = 0;
  int root = 0;
};
inline const std::vector<std::string> kMix{"allreduce", "allgather", "reducescatter", "broadcast",
                                           "reduce",    "sendrecv",  "alltoall"};

struct CapturedGraph {
  GraphExecutable executable = nullptr;
  std::vector<AnnouncedCall> calls;
};

class Rank {
 public:
  Rank(int device, size_t largest_bytes, Account* account);

  void UseDevice() const;  // in this thread
  void Make(const Operation& operation, const Membership& in);
  void BeginGroup();
  void EndGroup();
  void Compute(double us) const;  // on the device, before what follows
  void Synchronize();             // waits for the device
  CapturedGraph Capture(const std::function<void()>& calls);
  void Replay(const CapturedGraph& graph);

 private:
  void Announce(const char* function, size_t count, const Membership& in);
  void Broadcast(void* to, size_t count, int root, const Membership& in);
  void MakeAlltoAll(size_t bytes, const Membership& in);
  void MakeSendAndReceive(size_t bytes, const Membership& in);
  void MakeBroadcasts(size_t bytes, const Membership& in);

  int device_;
  Account* account_;
  Stream stream_ = nullptr;
  void* send_ = nullptr;
  void* receive_ = nullptr;
};

}  // namespace nccl_exporter::host_job
