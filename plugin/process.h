// SPDX-License-Identifier: Apache-2.0
// The plugin's one instance in a process: its segment, its communicators, and what each callback of NCCL comes down to
// once its arguments are brought into one form. Nothing in here returns an error to NCCL.
//
// The instance lives in memory that the kernel clears in a forked child (MADV_WIPEONFORK): there the salt is 0, so that
// no handle of the parent's fits and the child writes nothing into the parent's segment. A child that starts NCCL anew
// gets an instance anew.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/channel_events.h"
#include "plugin/communicator.h"
#include "plugin/event_policy.h"
#include "plugin/handle.h"
#include "plugin/profiler_abi.h"
#include "plugin/sampler.h"
#include "plugin/segment.h"

namespace nccl_exporter {

// What init tells, by whichever version. v1 to v3 tell nothing: `is_known` is false, and id and rank come with the
// first operation.
struct InitRequest {
  int api_version = 0;
  bool is_known = false;
  uint64_t id = 0;
  const char* name = nullptr;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
  abi::Logger logger = nullptr;
};

// The fields of a start event that the first operation may teach (API v1 to v3).
struct TaskOrigin {
  bool tells_identity = false;
  uint64_t id = 0;
  int rank = 0;
};

class Process {
 public:
  // The instance, made on first use; nullptr if there is no memory for it. Any thread.
  static Process* Obtain();
  // The instance if init was ever called, else nullptr.
  static Process* Get() { return instance_.load(std::memory_order_acquire); }

  // Sets *context and *mask. Serialised by a lock: NCCL calls init for several communicators at once.
  void Init(const InitRequest& request, void** context, int* mask);
  void Finalize(void* context);

  // Each returns the handle for NCCL, or nullptr when the event is dropped.
  void* StartCallGroup(void* context);
  void* StartCall(void* context, Function function, bool is_captured, void* call_group);
  void* StartLaunch(void* context);
  void* StartTask(void* context, OperationStart& start, const TaskOrigin& origin, uint64_t count,
                  uint32_t element_bytes, void* call, void* launch);
  void* StartCopyEngineTask(void* context, Function function, uint64_t count, uint32_t element_bytes);
  void* StartKernelChannel(void* task, uint32_t channel, uint64_t gpu_ns);
  void* StartProxyOperation(void* task, int pid);

  void Stop(void* handle);
  void StampKernelChannel(void* handle, uint64_t gpu_ns);

 private:
  enum class Mode : uint8_t { kNotStarted = 0, kRunning, kOff };
  // A communicator as a context names it.
  struct Member {
    Communicator* communicator = nullptr;
    uint32_t ranks = 0;
  };

  void Start(const InitRequest& request);
  const EventPolicy& PolicyFor(int api_version, const void* address_in_nccl);
  uint32_t ClaimSlot();  // under the lock, like all that init and finalize do
  bool PrepareSlot(uint32_t slot);
  void OpenSlot(uint32_t slot, const InitRequest& request, const EventPolicy& policy);
  void OpenOverflow();

  // Sampling (process_sampling.cc).
  struct LibrarySampling {  // of one copy of libnccl
    Sampler sampler;
    std::atomic<SamplingReason> reason;
  };
  // Under the lock. The sampling of the copy that the mask belongs to, or nullptr where there is none, for the reason
  // that is given; the mask is stored in either case.
  LibrarySampling* SampleLibrary(int* mask, int api_version, const EventPolicy& policy, SamplingReason* reason);
  void ShowSampling(uint32_t slot, const LibrarySampling* library, SamplingReason reason);
  void ShowSampling(LibrarySampling& library);
  LibrarySampling* LibraryOf(const Sampler* sampler);
  // Before a call that must not see a change of the mask.
  void FreezeMask(Sampler& sampler, FreezingCall call, void* context, void* call_group);
  void FreezeMask(LibrarySampling& library, SamplingReason reason);
  void EndCallGroup(Handle call_group);
  void ChangeMask(Communicator& communicator, Sampler& sampler);
  bool IsAnyCallGroupOpen(const Sampler& sampler) const;

  uint16_t Salt() const { return salt_.load(std::memory_order_acquire); }
  bool IsOurs(Handle handle) const {
    const uint16_t salt = Salt();
    return salt != 0 && handle.Salt() == salt;
  }
  // The same, and of this kind: one comparison. In a forked child, where the salt is 0, no communicator is found behind
  // the handle.
  bool Fits(Handle handle, HandleKind kind) const {
    return handle.bits >> 44 == (uint64_t{Salt()} << 4 | static_cast<uint64_t>(kind));
  }
  void* Give(HandleKind kind, uint32_t slot, uint64_t ticket, uint32_t channel = 0) const {
    return Handle::Of(Salt(), kind, slot, ticket, channel).Pointer();
  }
  bool IsOverflow(uint32_t slot) const { return slot == slot_count_ - 1; }
  Member Find(void* context);
  // The communicator that a handle of this kind belongs to, or nullptr.
  Communicator* Owner(Handle handle, HandleKind kind) const {
    return Fits(handle, kind) ? communicators_[handle.Slot()].load(std::memory_order_acquire) : nullptr;
  }
  void* RefuseChannel(Handle task, uint32_t channel);
  void StopOther(Handle handle);
  void CountLoss(Loss loss);
  void LearnIdentity(uint32_t slot, const TaskOrigin& origin);
  // Fills in when the call was made. False if the call is being captured at this moment: nothing is handed to the GPU.
  bool DateCall(Handle call, OperationStart* start);
  // A communicator captures one graph at a time.
  Word& CapturingEntry(Handle call_group) { return capturing_[call_group.Slot()]; }

  static std::atomic<Process*> instance_;

  // 0 until everything below is ready, and in a forked child. Stored with release, loaded with acquire before anything
  // else is read.
  std::atomic<uint16_t> salt_;
  int pid_;
  uint64_t start_ns_;  // CLOCK_MONOTONIC; times in kCall handles count from it
  uint32_t slot_count_;
  pthread_mutex_t lock_;
  Mode mode_;
  Options options_;
  Segment segment_;
  struct Decision {
    int nccl_version = -1;
    bool is_made = false;
    EventPolicy policy;
  };
  std::array<Decision, 8> decisions_;                  // by API version
  std::array<Word, Handle::kMaxSlots> capturing_;      // by slot: the call group that is open and under graph capture
  std::array<Word, Handle::kMaxSlots> generations_;    // of the live communicator in each slot; 0: none
  std::array<Word, Handle::kMaxSlots> used_;           // generations so far
  std::array<uint64_t, Handle::kMaxSlots> closed_ns_;  // CLOCK_MONOTONIC of the last finalize; under the lock
  std::array<Word, Handle::kMaxSlots> learned_;        // whether identity has come (API v1 to v3)
  std::array<std::atomic<Communicator*>, Handle::kMaxSlots> communicators_;
  static constexpr size_t kMostLibraries =
      4;  // copies of libnccl that are sampled: a framework's own, and the system's
  std::array<LibrarySampling, kMostLibraries> libraries_;
};

// The hot ones, inline: see channel_events.h.

[[gnu::always_inline]] inline void* Process::StartKernelChannel(void* task, uint32_t channel, uint64_t gpu_ns) {
  const Handle handle = Handle::From(task);
  Communicator* communicator = Owner(handle, HandleKind::kOperation);
  if (communicator == nullptr || channel >= Handle::kMaxChannels) return RefuseChannel(handle, channel);
  const TimingSource source = communicator->source();
  if (source == TimingSource::kProxy) return nullptr;  // the mask was changed by someone else
  if (source == TimingSource::kKernelCpu) gpu_ns = NowNs();
  if (!communicator->StartChannel(handle.Ticket(), channel, gpu_ns)) return nullptr;
  return Handle{handle.As(HandleKind::kKernelChannel).bits | channel}.Pointer();
}

[[gnu::always_inline]] inline void Process::StampKernelChannel(void* pointer, uint64_t gpu_ns) {
  const Handle handle = Handle::From(pointer);
  Communicator* communicator = Owner(handle, HandleKind::kKernelChannel);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle);
  communicator->StampChannel(handle.Ticket(), handle.Channel(), gpu_ns);
}

[[gnu::always_inline]] inline void Process::Stop(void* pointer) {
  const Handle handle = Handle::From(pointer);
  Communicator* communicator = Owner(handle, HandleKind::kKernelChannel);
  if (communicator == nullptr) return StopOther(handle);
  if (communicator->source() == TimingSource::kKernelCpu) {
    communicator->StampChannel(handle.Ticket(), handle.Channel(), NowNs());
  }
  communicator->StopChannel(handle.Ticket(), handle.Channel());
}

}  // namespace nccl_exporter
