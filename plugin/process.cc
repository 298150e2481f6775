// SPDX-License-Identifier: Apache-2.0
#include "plugin/process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "plugin/identity/identity.h"
#include "plugin/identity/rank_numbers.h"
#include "plugin/nccl/nccl_caller.h"
#include "plugin/oldest_glibc.h"
#include "plugin/segment/own_file.h"
#include "plugin/version.h"

namespace nccl_exporter::plugin {
namespace {

// Threads whose time is simulated may be behind the first one's.
constexpr uint64_t kClockMarginNs = 1'000'000'000;

uint16_t RandomSalt() {
  uint16_t salt = 0;
  if (!FillRandom(&salt, sizeof(salt))) salt = static_cast<uint16_t>(NowNs() >> 4);
  return salt != 0 ? salt : 1;
}

void StoreMask(int* mask, const EventDecision& decision) {
  __atomic_store_n(mask, decision.policy.mask, __ATOMIC_RELAXED);
}

class Locked {
 public:
  explicit Locked(pthread_mutex_t* lock) : lock_(lock) { pthread_mutex_lock(lock_); }
  ~Locked() { pthread_mutex_unlock(lock_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t* lock_;
};

template <typename... Arguments>
void Log(abi::Logger logger, int level, const char* format, Arguments... arguments) {
  if (logger == nullptr) return;
  const int callers_level = LogLevelOf(reinterpret_cast<const void*>(logger), level);
  logger(callers_level, abi::kLogInit, __FILE__, __LINE__, format, arguments...);
}

}  // namespace

std::atomic<Process*> Process::instance_{nullptr};

Process* Process::Obtain() {
  if (Process* instance = Get()) return instance;
  void* memory = MapMemory(sizeof(Process));
  if (memory == nullptr) return nullptr;
  // Where the kernel does not clear it in a child, libc's fork does, which a system call bypasses.
  // This library stays loaded (nodelete), so the handler does.
  const bool is_cleared = madvise(memory, sizeof(Process), kWipeOnFork) == 0 ||
                          pthread_atfork(nullptr, nullptr, ClearInChild) == 0;
  if (!is_cleared) return munmap(memory, sizeof(Process)), nullptr;
  Process* made = static_cast<Process*>(memory);
  Process* expected = nullptr;
  if (instance_.compare_exchange_strong(expected, made, std::memory_order_acq_rel)) return made;
  munmap(memory, sizeof(Process));
  return expected;
}

void Process::ClearInChild() {
  if (Process* const instance = Get())
    std::memset(static_cast<void*>(instance), 0, sizeof(Process));
}

// Start.

// The first communicator of the process makes the segment. Where that fails, NCCL runs as without a
// plugin: its log has the reason once, and every later call returns at once.
void Process::Start(const InitRequest& request) {
  mode_ = Mode::kOff;
  options_ = ReadOptions(ProcessEnvironment);
  for (const char* name : options_.rejected) {
    if (name == nullptr) break;
    Log(request.logger, abi::kLogWarn,
        "nccl-exporter: value of %s not understood, its default is in force", name);
  }
  for (const char* name : kFormerVariables) {
    if (ProcessEnvironment(name) == nullptr) continue;
    Log(request.logger, abi::kLogInfo, "nccl-exporter: %s is of a former version, and ignored",
        name);
  }
  if (!options_.enable)
    return Log(request.logger, abi::kLogInfo, "nccl-exporter: off by NCCL_EXPORTER_ENABLE=0");
  char error[256];
  // This object is memory of zeros, mapped or wiped by a fork: no constructor has run.
  new (&segment_) Segment;
  const FirstCommunicator first{.rank_numbers_process = HasMoreRanksThanProcesses(
                                    ProcessEnvironment, request.ranks, request.nodes),
                                .id = request.ranks > 1 ? request.id : 0};
  if (!segment_.Create(options_, ProcessEnvironment, error, sizeof(error), first)) {
    return Log(request.logger, abi::kLogWarn, "nccl-exporter: no metrics from this process: %s",
               error);
  }
  communicators_.Open(segment_.slot_count());
  call_clock_.Open(NowNs() - kClockMarginNs);
  pid_ = getpid();
  capturing_threads_.Open();
  host_announcements_.Open(ProcessEnvironment("CUDA_LAUNCH_BLOCKING"));
  network_timing_.Open(options_);
  const TraceFile trace =
      options_.trace ? MakeTraceFile(segment_.header()->start_monotonic_ns) : TraceFile{};
  if (options_.trace && trace.file == nullptr) {
    Log(request.logger, abi::kLogInfo, "nccl-exporter: no traces on request: %s: %s", trace.fault,
        std::strerror(errno));
  }
  trace_.Open(trace.file);
  OpenOverflow();
  mode_ = Mode::kRunning;
  communicators_.StoreSalt(RandomSalt());
  if (segment_.is_on_disk()) {
    Log(request.logger, abi::kLogWarn,
        "nccl-exporter: %s is on a disk, whose writes may hold up operations", segment_.path());
  }
  Log(request.logger, abi::kLogInfo, "nccl-exporter %s: segment %s", kPluginVersion,
      segment_.path());
}

// One slot that all communicators share for which there is no other: their sums stay right, and
// they cannot be distinguished.
void Process::OpenOverflow() {
  const uint32_t overflow = segment_.overflow_slot();
  if (!communicators_.Prepare(segment_, overflow)) return;
  layout::CommunicatorSlot* slot = segment_.slot(overflow);
  slot->timing_reason = static_cast<uint64_t>(TimingReason::kOverflow);
  StoreRelease(slot->state, layout::StateWord(1, layout::SlotState::kLive));
  Communicator* communicator = communicators_.InSlot(overflow);
  communicator->recorder().ShareSlot();
  communicator->Open({.slot = slot, .header = segment_.header()});
  communicator->trace_lanes().Open(overflow, 0, &trace_);
}

// Init.

void Process::Init(const InitRequest& request, void** context, int* mask) {
  *context = nullptr;
  Locked locked(&lock_);
  if (mode_ == Mode::kNotStarted) Start(request);
  if (mode_ == Mode::kOff) return;
  NoteJob(request);
  const EventDecision& decision = decisions_.For(request, options_, mask);
  Loss why = Loss::kNoFreeCommunicatorSlot;
  const uint32_t slot = communicators_.Claim(segment_, options_.retention_ns, &why);
  if (communicators_.IsOverflow(slot)) {
    CountLoss(why);
    *context = InitInOverflow(request, decision, mask);
  } else {
    *context = InitInSlot(slot, request, decision, mask);
  }
}

// Notes what a communicator shows of its process and its job.
void Process::NoteJob(const InitRequest& request) {
  layout::SegmentHeader* header = segment_.header();
  if (HasMoreRanksThanProcesses(ProcessEnvironment, request.ranks, request.nodes))
    StoreRelaxed(header->rank_numbers_process, 1);
  if (request.ranks > 1 && LoadRelaxed(header->first_communicator) == 0)
    StoreRelaxed(header->first_communicator, request.id);
}

void* Process::InitInOverflow(const InitRequest& request, const EventDecision& decision,
                              int* mask) {
  const bool is_overridden = mask_watch_.IsOverridden(mask, communicators_.overflow_slot());
  if (is_overridden) NoteMaskOverride(mask);
  if (!is_overridden) StoreMask(mask, decision);
  network_timing_.RestoreBit(mask);
  // The context carries the number of ranks, which the shared slot cannot.
  const uint64_t ranks = request.ranks > 0 ? static_cast<uint64_t>(request.ranks) : 0;
  const uint32_t slot = communicators_.overflow_slot();
  return Handle::Of(communicators_.Salt(), HandleKind::kContext, slot, ranks).Pointer();
}

void* Process::InitInSlot(uint32_t slot, const InitRequest& request, const EventDecision& decision,
                          int* mask) {
  const EventPolicy& policy = decision.policy;
  const bool is_overridden = mask_watch_.IsOverridden(mask, communicators_.overflow_slot());
  if (is_overridden) NoteMaskOverride(mask);
  if (!is_overridden) StoreMask(mask, decision);
  // Before API v4 the number of nodes is not known: such a communicator costs memory only.
  if (policy.may_time_network && request.nodes != 1) {
    network_timing_.Join(*communicators_.InSlot(slot), mask, policy.mask, segment_.slot(slot),
                         segment_.header());
  }
  network_timing_.RestoreBit(mask);
  const Handle context = OpenSlot(slot, request, decision);
  if (is_overridden) {
    ShowMaskOverride(slot);
  } else if (policy.is_mask_watched) {
    mask_watch_.Begin(slot, mask, policy.mask);
  }
  return context.Pointer();
}

// Everything is written before the state says that the slot lives: a reader that sees the state
// sees the rest.
Handle Process::OpenSlot(uint32_t index, const InitRequest& request,
                         const EventDecision& decision) {
  const EventPolicy& policy = decision.policy;
  const uint64_t generation = communicators_.NextGeneration(index);
  layout::CommunicatorSlot* slot = segment_.slot(index);
  slot->api_version = static_cast<uint64_t>(request.api_version);
  slot->nccl_version = static_cast<uint64_t>(decision.nccl_version);
  slot->event_mask = static_cast<uint64_t>(policy.mask);
  slot->timing_source = static_cast<uint64_t>(policy.source);
  slot->timing_reason = static_cast<uint64_t>(policy.reason);
  slot->created_monotonic_ns = NowNs();
  slot->created_realtime_ns = ReadClock(CLOCK_REALTIME);
  slot->communicator_id = request.id;
  slot->rank = static_cast<uint64_t>(request.rank);
  const uint32_t ranks = request.ranks > 0 ? static_cast<uint32_t>(request.ranks) : 0;
  slot->ranks = ranks;
  slot->nodes = request.nodes > 0 ? static_cast<uint64_t>(request.nodes) : 0;
  slot->has_identity = request.is_known ? 1 : 0;
  CopyText(slot->name, sizeof(slot->name), request.name);
  const GpuIdentity gpu = FindGpu(ProcessEnvironment);
  slot->gpu_index = static_cast<uint64_t>(gpu.index + 1);
  CopyText(slot->gpu_uuid, sizeof(slot->gpu_uuid), gpu.uuid);
  CopyText(slot->pci_bus_id, sizeof(slot->pci_bus_id), gpu.pci_bus_id);
  NoteGpu(gpu);
  const RankNumbers numbers = FindRankNumbers(ProcessEnvironment);
  slot->global_rank = static_cast<uint64_t>(numbers.global_rank + 1);
  slot->local_rank = static_cast<uint64_t>(numbers.local_rank + 1);
  slot->world_size = static_cast<uint64_t>(numbers.world_size);

  communicators_.InSlot(index)->Open({.source = policy.source,
                                      .rank = request.rank,
                                      .ranks = ranks,
                                      .slot = slot,
                                      .header = segment_.header(),
                                      .causes = policy.causes,
                                      .times_are_on_probation = policy.times_are_on_probation});
  communicators_.InSlot(index)->trace_lanes().Open(index, request.id, &trace_);
  const Handle context = communicators_.OpenSlot(index, request.is_known);
  StoreRelease(slot->state, layout::StateWord(generation, layout::SlotState::kLive));
  return context;
}

// A process with several GPUs has several ranks of the job: its rank variables then number the
// process, not a rank.
void Process::NoteGpu(const GpuIdentity& gpu) {
  if (gpu.index < 0 && gpu.uuid[0] == '\0') return;
  if (!has_gpu_) {
    has_gpu_ = true;
    first_gpu_ = gpu;
  } else if (gpu.index != first_gpu_.index || std::strcmp(gpu.uuid, first_gpu_.uuid) != 0) {
    StoreRelaxed(segment_.header()->rank_numbers_process, 1);
  }
}

// Finalize.

// Handles that NCCL still holds afterwards carry the former generation, and are refused.
void Process::Finalize(void* context) {
  const Handle handle = Handle::From(context);
  if (context == nullptr) return;
  if (!communicators_.IsOurs(handle) || handle.Kind() != HandleKind::kContext)
    return CountLoss(Loss::kUnknownContext);
  const uint32_t index = handle.Slot();
  if (communicators_.IsOverflow(index)) return;
  Locked locked(&lock_);
  Communicator* communicator = communicators_.Find(handle);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownContext);
  communicators_.CloseSlot(index);
  mask_watch_.End(index);
  communicator->Finalize();
  NetworkTiming::Leave(*communicator);
  const uint64_t now_ns = NowNs();
  const uint64_t generation = communicators_.NoteFinalized(index, now_ns);
  layout::CommunicatorSlot* slot = segment_.slot(index);
  StoreRelaxed(slot->closed_monotonic_ns, now_ns);
  StoreRelease(slot->state, layout::StateWord(generation, layout::SlotState::kClosed));
}

// Functions that callbacks use.

void Process::CountLoss(Loss loss) {
  if (communicators_.Salt() != 0)
    AddRelaxed(segment_.header()->losses[static_cast<uint8_t>(loss)], 1);
}

// Before API v4 the communicator is not known at init: its first event identifies it, once.
void Process::LearnIdentity(uint32_t index, uint64_t communicator_id, int rank) {
  if (!communicators_.TakeIdentity(index)) return;
  communicators_.InSlot(index)->LearnRank(rank);
  communicators_.InSlot(index)->trace_lanes().LearnIdentity(communicator_id);
  layout::CommunicatorSlot* slot = segment_.slot(index);
  std::atomic_ref<uint64_t>(slot->communicator_id)
      .store(communicator_id, std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(slot->rank)
      .store(static_cast<uint64_t>(rank), std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(slot->has_identity).store(1, std::memory_order_release);
}

// Windows of network timing open before the operation's own is decided.
uint64_t Process::ConsiderTrace(uint64_t call_ns, Communicator& communicator) {
  if (const std::optional<uint64_t> until_realtime_ns = trace_.Take(call_ns))
    network_timing_.KeepOpen(*until_realtime_ns);
  const uint64_t id = communicator.trace_lanes().communicator_id();
  switch (trace_.LevelOf(call_ns, id)) {
    case trace_ring::Level::kChannels:
      return Handle::kChannelsFlag;
    case trace_ring::Level::kSteps:
      return Handle::kChannelsFlag | Handle::kStepsFlag;
    case trace_ring::Level::kNone:
      break;
  }
  return 0;
}

void Process::NoteMaskOverride(const int* mask) {
  host_announcements_.SetPossible();
  for (uint32_t slot = 0; slot < communicators_.overflow_slot(); ++slot) {
    if (!mask_watch_.IsWatched(slot, mask)) continue;
    mask_watch_.End(slot);
    ShowMaskOverride(slot);
  }
}

void Process::ShowMaskOverride(uint32_t slot) {
  communicators_.InSlot(slot)->EndKernelTiming();
  std::atomic_ref<uint64_t>(segment_.slot(slot)->timing_reason)
      .store(static_cast<uint64_t>(TimingReason::kMaskOverride), std::memory_order_release);
}

}  // namespace nccl_exporter::plugin
