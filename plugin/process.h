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

#include "plugin/identity/gpu_identity.h"
#include "plugin/nccl/event_policy.h"
#include "plugin/nccl/profiler_abi.h"
#include "plugin/operations/capturing_threads.h"
#include "plugin/operations/communicator.h"
#include "plugin/operations/handle.h"
#include "plugin/sampling/sampler.h"
#include "plugin/segment/segment.h"

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
  void* StartCallGroup(void* context, int depth);
  void* StartCall(void* context, Function function, bool is_captured, void* call_group);
  void* StartLaunch(void* context);
  void* StartTask(void* context, OperationStart& start, const TaskOrigin& origin, uint64_t count,
                  uint32_t element_bytes, void* call, void* launch);
  void* StartCopyEngineTask(void* context, Function function, uint64_t count, uint32_t element_bytes, void* call);
  // With a GPU time (API v4 and later), or dated here.
  template <bool kHasTimeStamp>
  void* StartKernelChannel(void* task, uint32_t channel, uint64_t gpu_ns);
  void* StartProxyOperation(void* task, int pid);
  void* StartKernelPhase(void* channel, uint32_t phase, uint64_t gpu_ns);
  void StopKernelPhase(void* phase, uint64_t gpu_ns);

  template <bool kHasTimeStamp>
  void Stop(void* handle);
  void StampKernelChannel(void* handle, uint64_t gpu_ns);

 private:
  enum class Mode : uint8_t { kNotStarted = 0, kRunning, kOff };
  void Start(const InitRequest& request);
  // What was decided for a copy of NCCL at its first init, for good.
  struct Decision {
    int api_version = 0;  // 0: not made
    int nccl_version = 0;
    EventPolicy policy;
  };
  const Decision& DecisionFor(const InitRequest& request, const void* address_in_nccl);
  uint32_t ClaimSlot(bool takes_phases);  // under the lock, like all that init and finalize do
  bool PrepareSlot(uint32_t slot, bool takes_phases);
  void OpenSlot(uint32_t slot, const InitRequest& request, const Decision& decision);
  void OpenOverflow();
  // Under the lock. RANK and its kin number the process, not a rank, once it has had two GPUs: for good, since a label
  // that comes back breaks series.
  void NoteGpu(const GpuIdentity& gpu);

  // The mask word of a communicator's copy of libnccl, and what was stored there. nullptr: not watched. Cleared when
  // the communicator is finalized: that copy may then be unloaded.
  struct WatchedMask {
    std::atomic<const int*> mask;
    std::atomic<int> stored;

    // The word, if somebody else has changed it; else nullptr. Read once: another thread may stop the watch meanwhile.
    const int* Overridden() const {
      const int* word = mask.load(std::memory_order_relaxed);
      if (word == nullptr) return nullptr;
      return __atomic_load_n(word, __ATOMIC_RELAXED) != stored.load(std::memory_order_relaxed) ? word : nullptr;
    }
  };
  static void StoreMask(int* mask, const Decision& decision);
  // Under the lock: at an init of the copy that `mask` belongs to.
  bool IsMaskOverridden(const int* mask) const;
  void WatchMask(uint32_t slot, const int* mask, int stored);
  // Somebody else has changed the mask: NCCL's RAS client can, from 2.31 on. Kernel-timed communicators drift from here
  // on, since NCCL's host has stopped or begun to count. Any thread; once per change, and then over all slots.
  [[gnu::cold]] void NoteMaskOverride(const int* mask);
  void ShowMaskOverride(uint32_t slot);

  // Sampling (sampling/process_sampling.cc).
  struct LibrarySampling {  // of one copy of libnccl
    Sampler sampler;
    std::atomic<SamplingReason> reason;
    uint32_t communicators;  // that are not finalized; under the lock
  };
  // Under the lock. The sampling of the copy that the mask belongs to, or nullptr where there is none, for the reason
  // that is given.
  LibrarySampling* SampleLibrary(int* mask, const Decision& decision, SamplingReason* reason);
  // Under the lock. The last communicator of a copy of libnccl takes its sampler along: the copy may be unloaded.
  void LeaveLibrary(Communicator& communicator);
  void ShowSampling(uint32_t slot, const LibrarySampling* library, SamplingReason reason);
  void ShowSampling(LibrarySampling& library);
  void ShowUntimed(uint32_t slot);
  LibrarySampling* LibraryOf(const Sampler* sampler);
  // Before a call that must not see a change of the mask.
  void FreezeMask(Sampler& sampler, FreezingCall call, void* context, void* call_group);
  void FreezeMask(LibrarySampling& library, SamplingReason reason);
  void EndCallGroup(Handle call_group, Communicator& communicator);
  void ChangeMask(Communicator& communicator, Sampler& sampler);
  bool IsAnyCallGroupOpen(const Sampler& sampler) const;

  uint16_t Salt() const { return salt_.load(std::memory_order_acquire); }
  bool IsOurs(Handle handle) const {
    const uint16_t salt = Salt();
    return salt != 0 && handle.Salt() == salt;
  }
  // The kind of a handle of ours; anything else, but none of the kinds, if it is not ours. In a forked child, where the
  // salt is 0, a stray pointer may have a kind, and no communicator is found behind it.
  HandleKind KindOf(Handle handle) const {
    const uint64_t kind = handle.bits >> 44 ^ uint64_t { Salt() } << 4;
    return kind < 16 ? static_cast<HandleKind>(kind) : HandleKind::kInvalid;
  }
  // The same, and of this kind: one comparison. In a forked child, where the salt is 0, no communicator is found behind
  // the handle.
  bool Fits(Handle handle, HandleKind kind) const {
    return handle.bits >> 44 == (uint64_t{Salt()} << 4 | static_cast<uint64_t>(kind));
  }
  bool IsOverflow(uint32_t slot) const { return slot == slot_count_ - 1; }
  // The communicator that a context names, or nullptr, which is counted.
  Communicator* Find(Handle context) {
    const uint32_t slot = context.Slot();
    if (context.bits == 0 || LoadAcquire(contexts_[slot]) != context.bits) return FindOther(context);
    return communicators_[slot].load(std::memory_order_relaxed);
  }
  Communicator* FindOther(Handle context);
  uint32_t RanksOf(Handle context, Communicator& communicator) const {
    return IsOverflow(context.Slot()) ? static_cast<uint32_t>(context.Ticket()) : communicator.recorder().ranks();
  }
  // The communicator that a handle of ours belongs to, or nullptr.
  Communicator* OwnerOf(Handle handle) const { return communicators_[handle.Slot()].load(std::memory_order_acquire); }
  // The same for any bits; nullptr as well if they are not a handle of this kind.
  Communicator* Owner(Handle handle, HandleKind kind) const { return Fits(handle, kind) ? OwnerOf(handle) : nullptr; }
  void* RefuseChannel(Handle task, uint32_t channel);
  void StopOther(Handle handle);
  void CountLoss(Loss loss);
  void LearnIdentity(uint32_t slot, const TaskOrigin& origin);
  static void PlaceInSymmetricPlan(OperationStart& start, const Communicator& communicator);
  // Fills in when the call was made. False if the call is being captured at this moment: nothing is handed to the GPU.
  bool DateCall(Handle call, OperationStart* start);

  // When a call was made, by the payload of its handle. False if that cannot be told.
  bool TimeOfCall(uint64_t payload, uint64_t* call_ns) const;

  static constexpr int kCallTimeShift = 10;  // a kCall handle tells the time in units of 1024 ns
  static constexpr int kCallHalfShift = 43;  // its 44 bits come round after 208 days: two halves of 2^43 units

  static std::atomic<Process*> instance_;

  // 0 until everything below is ready, and in a forked child. Stored with release, loaded with acquire before anything
  // else is read.
  std::atomic<uint16_t> salt_;
  int pid_;
  uint64_t start_ns_;  // CLOCK_MONOTONIC; times in kCall handles count from it
  Word call_half_;     // which half of the handles' range the latest call was in, counted from the start
  uint32_t slot_count_;
  pthread_mutex_t lock_;
  Mode mode_;
  Options options_;
  Segment segment_;
  std::array<Decision, 16> decisions_;  // filled from the front; the last place is used anew
  CapturingThreads capturing_threads_;
  std::array<Word, Handle::kMaxSlots> contexts_;       // handle of the live communicator in each slot; 0: none
  std::array<Word, Handle::kMaxSlots> generations_;    // of each slot so far
  std::array<uint64_t, Handle::kMaxSlots> closed_ns_;  // CLOCK_MONOTONIC of the last finalize; under the lock
  std::array<Word, Handle::kMaxSlots> learned_;        // whether identity has come (API v1 to v3)
  std::array<std::atomic<Communicator*>, Handle::kMaxSlots> communicators_;
  std::array<WatchedMask, Handle::kMaxSlots> watched_masks_;  // by slot
  static constexpr size_t kMostLibraries =
      4;  // copies of libnccl that are sampled: a framework's own, and the system's
  std::array<LibrarySampling, kMostLibraries> libraries_;
  GpuIdentity first_gpu_;  // of a communicator whose GPU is known; under the lock
  bool has_gpu_;           // whether there was one
  bool has_overflowed_;    // calls on communicators without a slot are not seen to freeze the mask; under the lock
};

}  // namespace nccl_exporter
