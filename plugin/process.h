// SPDX-License-Identifier: Apache-2.0
// The plugin's one instance in a process: owner of its segment and of its communicators, which
// NCCL's init and finalize open and close. Any thread; init and finalize take a lock, since NCCL
// calls them for several communicators at once. Nothing in here returns an error to NCCL.
//
// The instance lives in memory that is cleared in a forked child, by the kernel (MADV_WIPEONFORK)
// or, where it cannot, by libc's fork. It is never constructed: all zeros is its first state, and
// that of each of its parts. A child finds salt 0, so no handle of the parent's fits
// (communicator_table.h), and the child writes nothing into the parent's segment. A child that
// calls init makes a segment of its own.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/call_clock.h"
#include "plugin/captures.h"
#include "plugin/chain/chain.h"
#include "plugin/communicator_table.h"
#include "plugin/identity/identity.h"
#include "plugin/nccl/event_policy.h"
#include "plugin/nccl/profiler_abi.h"
#include "plugin/nccl/vocabulary.h"
#include "plugin/network/network_timer.h"
#include "plugin/network/network_windows.h"
#include "plugin/options.h"
#include "plugin/segment/segment.h"

namespace nccl_exporter::plugin {

// The fields of a start event by which the first operation names its communicator (API v1 to v3).
struct TaskOrigin {
  bool names_communicator = false;
  uint64_t communicator_id = 0;
  int rank = 0;
};

class Process {
 public:
  // The instance, made on first use; nullptr if there is no memory for it. Any thread.
  static Process* Obtain();
  // The instance if init was ever called, else nullptr.
  static Process* Get() { return LoadAcquire(instance_); }

  // Sets *context, which stands for that of a chained plugin too, and *mask.
  void Init(const InitRequest& request, void** context, int* mask);
  void Finalize(void* context);

  // Callbacks (callbacks.h). A start returns the handle for NCCL, or nullptr when the event is
  // dropped; that of a channel stores it, or nothing.
  void* StartCallGroup(void* context, int depth);
  void* StartCall(void* context, Function function, bool is_captured);
  template <bool kHasCallEvents>
  void* StartLaunch(void* context);
  void* StartTask(void* context, OperationStart& start, const TaskOrigin& origin, uint64_t count,
                  uint32_t element_bytes, void* call, void* launch);
  void* StartCopyEngineTask(void* context, Function function, uint64_t count,
                            uint32_t element_bytes, void* call);
  // With a GPU time (API v4 and later), or dated here.
  template <bool kHasTimeStamp>
  abi::Result StartKernelChannel(void** handle, void* task, uint32_t channel, uint64_t gpu_ns);
  // `begins_later`: BeginProxyOperation() will say that it has begun (API v4 and later).
  void* StartProxyOperation(void* task, int pid, bool is_send, bool begins_later);
  void BeginProxyOperation(void* proxy_operation);
  void* StartProxyStep(void* proxy_operation, int step);
  void RecordProxyStep(void* step, int state, uint64_t bytes);
  // API v2 and v3.
  void RecordProxyOperation(void* proxy_operation, int state, uint64_t sum_of_bytes, int steps);
  template <bool kHasTimeStamp>
  void Stop(void* handle);
  void StampKernelChannel(void* handle, uint64_t gpu_ns);

 private:
  static void ClearInChild();
  // Init of this plugin alone: its context. `is_chained`: the other one gets the communicator's
  // events.
  void* InitOwn(const InitRequest& request, int* mask, bool is_chained);

  // The communicator that a context names; nullptr is counted.
  Communicator* Find(Handle context) {
    Communicator* communicator = communicators_.Find(context);
    if (communicator == nullptr) CountLoss(Loss::kUnknownContext);
    return communicator;
  }
  // The network timer that a handle of one of its kinds belongs to; nullptr is counted.
  NetworkTimer* NetworkOf(Handle handle) {
    const Communicator* const communicator = communicators_.OwnerOf(handle);
    NetworkTimer* const network = communicator != nullptr ? communicator->network() : nullptr;
    if (network == nullptr) RefuseStep(handle);
    return network;
  }
  static void PlaceInSymmetricPlan(OperationStart& start, const Communicator& communicator);
  // Fills in when the call was made. False if the call is being captured at this moment: nothing is
  // handed to the GPU.
  bool DateCall(Handle call, OperationStart* start);
  bool HasSteps(Handle call) const;
  // Out of line, and with a callback's result: a callback ends with a jump to them, and no channel
  // pays for a frame.
  static abi::Result BeginChannels(void** handle, Communicator& communicator, Handle operation,
                                   uint32_t channel, uint64_t gpu_ns);
  abi::Result RefuseChannel(Handle task, uint32_t channel);
  [[gnu::cold, gnu::noinline]] void RefuseStep(Handle handle);
  void StopOther(Handle handle);
  void StopRare(Handle handle);
  void CountLoss(Loss loss);

  enum class Mode : uint8_t { kNotStarted = 0, kRunning, kOff };

  // Under the lock.
  void Start(const InitRequest& request);
  void OpenOverflow();
  void OpenChain(const InitRequest& request);
  // The policy for the copy of NCCL that calls, decided at its first init. `address_in_nccl`:
  // anything within it.
  EventPolicy& Decide(const InitRequest& request, const void* address_in_nccl);
  void KeepRoomForPools(const InitRequest& request, EventPolicy& policy);
  void NoteJob(const InitRequest& request);
  Handle OpenSlot(uint32_t index, const InitRequest& request, const EventPolicy& policy);
  void NoteGpu(const GpuIdentity& gpu);
  // Times the network operations of the slot's communicator, whose mask has been stored. Without
  // memory, or with more copies of libnccl than there is room for, its slot shows a share of 0.
  void JoinNetwork(uint32_t index, int* mask, const EventPolicy& policy);
  static void LeaveNetwork(Communicator& communicator);

  // Ends kernel timing where another program has changed the mask, once for each change: NCCL's
  // host has stopped or begun to count. Returns whether it has.
  bool EndIfOverridden(const int* mask);
  [[gnu::cold]] void CheckMask(const Communicator& communicator);

  static std::atomic<Process*> instance_;

  CommunicatorTable communicators_;  // ready last: its salt
  int pid_;
  CallClock call_clock_;
  CapturingThreads capturing_threads_;
  // Set by a captured call, and where another program has changed the event mask: calls may have
  // been captured that were not announced.
  std::atomic<bool> host_may_announce_;
  // One for each copy of libnccl: a framework's own, and the system's, twice. Under the lock.
  std::array<NetworkWindows, 4> network_windows_;
  Segment segment_;
  Chain chain_;

  pthread_mutex_t lock_;  // over what follows
  Mode mode_;
  Options options_;
  // Filled from the front; the last place is used again. More than a process has copies of libnccl.
  std::array<EventPolicy, 16> policies_;
  uint64_t shared_memory_at_first_init_;  // free bytes of /dev/shm
  uint32_t local_ranks_;                  // as PolicyInput has it
  GpuIdentity first_gpu_;                 // of a communicator whose GPU is known
  bool has_gpu_;                          // whether there was one
  bool has_looked_for_chain_;
};

}  // namespace nccl_exporter::plugin
