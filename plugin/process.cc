// SPDX-License-Identifier: Apache-2.0
#include "plugin/process.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "plugin/identity/cpu_allowance.h"
#include "plugin/identity/gpu_identity.h"
#include "plugin/identity/identity.h"
#include "plugin/nccl/nccl_parameter.h"
#include "plugin/nccl/nccl_version.h"
#include "plugin/process_events.h"
#include "plugin/version.h"

namespace nccl_exporter {
namespace {

constexpr uint64_t kClockMarginNs = 1'000'000'000;  // threads whose time is simulated may be behind the first one's

const char* Environment(const char* name) { return std::getenv(name); }

// Zeroed memory that is never given back. Touched at once, so that no callback waits for a page.
void* MapMemory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

template <typename T>
T* Make() {
  void* memory = MapMemory(sizeof(T));
  return memory == nullptr ? nullptr : new (memory) T;
}

uint16_t RandomSalt() {
  uint16_t salt = 0;
  if (getrandom(&salt, sizeof(salt), GRND_NONBLOCK) != sizeof(salt)) salt = static_cast<uint16_t>(NowNs() >> 4);
  return salt != 0 ? salt : 1;
}

uint64_t SharedMemoryFreeBytes() {
  struct statvfs file_system {};
  if (statvfs("/dev/shm", &file_system) != 0) return 0;
  return uint64_t{file_system.f_bavail} * file_system.f_frsize;
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
  if (logger != nullptr) logger(level, abi::kLogInit, __FILE__, __LINE__, format, arguments...);
}

}  // namespace

std::atomic<Process*> Process::instance_{nullptr};

Process* Process::Obtain() {
  if (Process* instance = Get()) return instance;
  void* memory = MapMemory(sizeof(Process));
  if (memory == nullptr) return nullptr;
  madvise(memory, sizeof(Process), MADV_WIPEONFORK);
  Process* made = static_cast<Process*>(memory);  // all zeros is its first state, as in a forked child
  Process* expected = nullptr;
  if (instance_.compare_exchange_strong(expected, made, std::memory_order_acq_rel)) return made;
  munmap(memory, sizeof(Process));
  return expected;
}

// Init and finalize.

void Process::Start(const InitRequest& request) {
  mode_ = Mode::kOff;
  options_ = ReadOptions(Environment);
  for (size_t row = 0; row < kOptions.size(); ++row) {
    if (!options_.is_rejected[row]) continue;
    Log(request.logger, abi::kLogWarn, "nccl-exporter: value of %s not understood, its default is in force",
        kOptions[row].name);
  }
  if (!options_.enable) return Log(request.logger, abi::kLogInfo, "nccl-exporter: off by NCCL_EXPORTER_ENABLE=0");
  char error[256];
  new (&segment_) Segment;
  const bool rank_numbers_process = HasMoreRanksThanProcesses(Environment, request.ranks, request.nodes);
  if (!segment_.Create(options_, Environment, error, sizeof(error), rank_numbers_process)) {
    return Log(request.logger, abi::kLogWarn, "nccl-exporter: no metrics from this process: %s", error);
  }
  slot_count_ = segment_.slot_count();
  start_ns_ = NowNs() - kClockMarginNs;
  pid_ = getpid();
  capturing_threads_.Open();
  OpenOverflow();
  mode_ = Mode::kRunning;
  salt_.store(RandomSalt(), std::memory_order_release);
  Log(request.logger, abi::kLogInfo, "nccl-exporter %s: segment %s", kPluginVersion, segment_.path());
}

void Process::OpenOverflow() {
  const uint32_t overflow = segment_.overflow_slot();
  if (!PrepareSlot(overflow, false)) return;
  layout::CommunicatorSlot* slot = segment_.slot(overflow);
  slot->timing_reason = static_cast<uint64_t>(TimingReason::kOverflow);
  StoreRelease(slot->state, layout::StateWord(1, layout::SlotState::kLive));
  Communicator* communicator = communicators_[overflow].load();
  communicator->recorder().ShareSlot();
  communicator->Open(TimingSource::kNone, -1, 0, slot, segment_.header());
}

// Once for each release that calls, so that communicators of one job are timed alike however full /dev/shm becomes.
const Process::Decision& Process::DecisionFor(const InitRequest& request, const void* address_in_nccl) {
  const int api_version = request.api_version;
  const int nccl_version = FindNcclVersion(address_in_nccl);
  Decision* decision = &decisions_[0];
  for (; decision->api_version != 0 && decision != &decisions_.back(); ++decision) {
    if (decision->api_version == api_version && decision->nccl_version == nccl_version) return *decision;
  }
  const LocalRanks local_ranks = FindLocalRanks(Environment, request.ranks, request.nodes);
  *decision = {.api_version = api_version,
               .nccl_version = nccl_version,
               .policy = DecideEvents({.api_version = api_version,
                                       .nccl_version = nccl_version,
                                       .kernel_timing = options_.kernel_timing,
                                       .shared_memory_free_bytes = SharedMemoryFreeBytes(),
                                       .local_ranks = local_ranks.on_node,
                                       .allgatherv_is_off = IsAllgathervOff(Environment),
                                       .milli_cpus_per_rank = MilliCpusPerRank(ReadCpuAllowance(), local_ranks),
                                       .asks_for_phases = options_.kernel_phases})};
  return *decision;
}

void Process::Init(const InitRequest& request, void** context, int* mask) {
  *context = nullptr;
  Locked locked(&lock_);
  if (mode_ == Mode::kNotStarted) Start(request);
  if (mode_ == Mode::kOff) return;
  if (HasMoreRanksThanProcesses(Environment, request.ranks, request.nodes)) {
    StoreRelaxed(segment_.header()->rank_numbers_process, 1);
  }
  const Decision& decision = DecisionFor(request, mask);
  const bool is_overridden = IsMaskOverridden(mask);
  if (is_overridden) NoteMaskOverride(mask);
  const uint32_t slot = ClaimSlot((decision.policy.mask & abi::kKernelPhase) != 0);
  if (IsOverflow(slot)) {
    has_overflowed_ = true;
    for (LibrarySampling& library : libraries_) {
      FreezeMask(library, SamplingReason::kOverflow);  // whether its groups are open cannot be told
    }
    SamplingReason reason = SamplingReason::kOverflow;
    if (SampleLibrary(mask, decision, &reason) == nullptr && !is_overridden) StoreMask(mask, decision);
    // The context carries the number of ranks, which the shared slot cannot.
    const uint64_t ranks = request.ranks > 0 ? static_cast<uint64_t>(request.ranks) : 0;
    *context = Handle::Of(Salt(), HandleKind::kContext, slot, ranks).Pointer();
  } else {
    SamplingReason reason = SamplingReason::kDefault;
    LibrarySampling* library = SampleLibrary(mask, decision, &reason);
    if (library == nullptr && !is_overridden) StoreMask(mask, decision);
    OpenSlot(slot, request, decision);
    if (is_overridden) {
      ShowMaskOverride(slot);
    } else if (decision.policy.is_mask_watched && library == nullptr) {
      WatchMask(slot, mask, decision.policy.mask);
    }
    communicators_[slot]
        .load(std::memory_order_relaxed)
        ->call_groups()
        .Open(library != nullptr ? &library->sampler : nullptr);
    ShowSampling(slot, library, reason);
    *context = Handle{LoadRelaxed(contexts_[slot])}.Pointer();
  }
}

// A place for a new communicator: closed for the retention time, which takes no further memory, or never used; the
// overflow slot if there is none.
uint32_t Process::ClaimSlot(bool takes_phases) {
  const uint32_t overflow = segment_.overflow_slot();
  const uint64_t now_ns = NowNs();
  uint32_t best = overflow;
  for (uint32_t slot = 0; slot < overflow && best == overflow; ++slot) {
    const bool is_closed = LoadRelaxed(generations_[slot]) != 0 && LoadRelaxed(contexts_[slot]) == 0;
    if (is_closed && now_ns > closed_ns_[slot] + options_.retention_ns) best = slot;
  }
  for (uint32_t slot = 0; slot < overflow && best == overflow; ++slot) {
    if (LoadRelaxed(generations_[slot]) == 0) best = slot;
  }
  if (best == overflow) return CountLoss(Loss::kNoFreeCommunicatorSlot), overflow;
  if (!PrepareSlot(best, takes_phases)) return CountLoss(Loss::kReservationFailed), overflow;
  return best;
}

bool Process::PrepareSlot(uint32_t slot, bool takes_phases) {
  if (!segment_.Reserve(slot, LoadRelaxed(generations_[slot]) + 1)) return false;
  Communicator* const former = communicators_[slot].load(std::memory_order_relaxed);
  const bool needs_room = takes_phases && (former == nullptr || !former->TakesPhases());
  auto* const room = needs_room ? Make<HeldTimes::Phases>() : nullptr;
  if (needs_room && room == nullptr) return false;
  Communicator* const communicator = former != nullptr ? former : Make<Communicator>();
  if (communicator == nullptr) {
    if (room != nullptr) munmap(room, sizeof(*room));
    return false;
  }
  if (room != nullptr) communicator->TakePhases(room);
  communicators_[slot].store(communicator, std::memory_order_release);
  return true;
}

// The event mask, where others change it.

void Process::StoreMask(int* mask, const Decision& decision) {
  __atomic_store_n(mask, decision.policy.mask, __ATOMIC_RELAXED);
}

bool Process::IsMaskOverridden(const int* mask) const {
  if (mask == nullptr) return false;
  for (uint32_t slot = 0; slot + 1 < slot_count_; ++slot) {
    if (watched_masks_[slot].Overridden() == mask) return true;
  }
  return false;
}

void Process::WatchMask(uint32_t slot, const int* mask, int stored) {
  watched_masks_[slot].stored.store(stored, std::memory_order_relaxed);
  watched_masks_[slot].mask.store(mask, std::memory_order_relaxed);
}

void Process::NoteMaskOverride(const int* mask) {
  for (uint32_t slot = 0; slot + 1 < slot_count_; ++slot) {
    if (watched_masks_[slot].mask.load(std::memory_order_relaxed) != mask) continue;
    watched_masks_[slot].mask.store(nullptr, std::memory_order_relaxed);
    ShowMaskOverride(slot);
  }
}

void Process::ShowMaskOverride(uint32_t slot) {
  communicators_[slot].load(std::memory_order_acquire)->EndKernelTiming();
  std::atomic_ref<uint64_t>(segment_.slot(slot)->timing_reason)
      .store(static_cast<uint64_t>(TimingReason::kMaskOverride), std::memory_order_release);
}

void Process::OpenSlot(uint32_t index, const InitRequest& request, const Decision& decision) {
  const EventPolicy& policy = decision.policy;
  const uint64_t generation = LoadRelaxed(generations_[index]) + 1;
  StoreRelaxed(generations_[index], generation);
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
  const GpuIdentity gpu = FindGpu(Environment("CUDA_VISIBLE_DEVICES"));
  slot->gpu_index = static_cast<uint64_t>(gpu.index + 1);
  CopyText(slot->gpu_uuid, sizeof(slot->gpu_uuid), gpu.uuid);
  CopyText(slot->pci_bus_id, sizeof(slot->pci_bus_id), gpu.pci_bus_id);
  NoteGpu(gpu);

  communicators_[index]
      .load(std::memory_order_relaxed)
      ->Open(policy.source, request.rank, ranks, slot, segment_.header(), policy.causes, policy.times_are_on_probation);
  StoreRelaxed(learned_[index], request.is_known ? 1 : 0);
  StoreRelease(contexts_[index], Handle::Of(Salt(), HandleKind::kContext, index, generation).bits);
  StoreRelease(slot->state, layout::StateWord(generation, layout::SlotState::kLive));
}

void Process::NoteGpu(const GpuIdentity& gpu) {
  if (gpu.index < 0 && gpu.uuid[0] == '\0') return;
  if (!has_gpu_) {
    has_gpu_ = true;
    first_gpu_ = gpu;
  } else if (gpu.index != first_gpu_.index || std::strcmp(gpu.uuid, first_gpu_.uuid) != 0) {
    StoreRelaxed(segment_.header()->rank_numbers_process, 1);
  }
}

void Process::Finalize(void* context) {
  const Handle handle = Handle::From(context);
  if (context == nullptr) return;
  if (!IsOurs(handle) || handle.Kind() != HandleKind::kContext) return CountLoss(Loss::kUnknownContext);
  if (IsOverflow(handle.Slot())) return;
  Locked locked(&lock_);
  Communicator* communicator = Find(handle);
  if (communicator == nullptr) return;
  const uint32_t index = handle.Slot();
  StoreRelease(contexts_[index], 0);
  WatchMask(index, nullptr, 0);
  communicator->Finalize();
  LeaveLibrary(*communicator);
  closed_ns_[index] = NowNs();
  layout::CommunicatorSlot* slot = segment_.slot(index);
  StoreRelaxed(slot->closed_monotonic_ns, closed_ns_[index]);
  StoreRelease(slot->state, layout::StateWord(LoadRelaxed(generations_[index]), layout::SlotState::kClosed));
}

// Contexts and handles.

void Process::CountLoss(Loss loss) {
  if (Salt() != 0) AddRelaxed(segment_.header()->losses[static_cast<uint8_t>(loss)], 1);
}

// The shared slot has no context of its own; every other context is gone, or foreign.
Communicator* Process::FindOther(Handle context) {
  if (Fits(context, HandleKind::kContext) && IsOverflow(context.Slot())) {
    return communicators_[context.Slot()].load(std::memory_order_relaxed);
  }
  CountLoss(Loss::kUnknownContext);
  return nullptr;
}

// Starts.

// The stop of its event is that of the host's call (2.30.7 ce_coll.cc :1361-1408, ncclLaunchCeColl). NCCL hands it to
// the streams that order the communicator's kernels (enqueue.cc, ncclLaunchPrepare), so that it is over once a later
// one has run. It is a launch of its own, for operations are ordered by their launches.
void* Process::StartCopyEngineTask(void* context, Function function, uint64_t count, uint32_t element_bytes,
                                   void* call) {
  const Handle from = Handle::From(context);
  Communicator* communicator = Find(from);
  if (communicator == nullptr) return nullptr;
  void* const unfollowed = from.With(HandleKind::kUnfollowed, 0).Pointer();
  OperationStart start{.function = function, .has_call_events = true, .is_copy = true};
  if (!DateCall(Handle::From(call), &start)) return unfollowed;
  start.is_replay = false;  // NCCL announces none
  start.is_untimed = true;
  start.message_bytes = MessageBytes(function, count, element_bytes, RanksOf(from, *communicator));
  if (communicator->FollowsOperations()) start.launch = communicator->OpenLaunch() & Handle::kTicketMask;
  start.launch_is_followed = start.launch != 0;
  communicator->StartOperation(start);
  if (start.launch != 0) communicator->CloseLaunch(start.launch);
  return unfollowed;
}

// API v1 to v3: the communicator is named by its first operation, not by init.
void Process::LearnIdentity(uint32_t index, const TaskOrigin& origin) {
  if (IsOverflow(index) || !Exchange(learned_[index], 0, 1)) return;
  layout::CommunicatorSlot* slot = segment_.slot(index);
  communicators_[index].load(std::memory_order_relaxed)->LearnRank(origin.rank);
  std::atomic_ref<uint64_t>(slot->communicator_id).store(origin.id, std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(slot->rank).store(static_cast<uint64_t>(origin.rank), std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(slot->has_identity).store(1, std::memory_order_release);
}

void* Process::RefuseChannel(Handle task, uint32_t channel) {
  if (Fits(task, HandleKind::kUnfollowed)) return nullptr;
  CountLoss(channel >= Handle::kMaxChannels ? Loss::kChannelOutOfRange : Loss::kUnknownHandle);
  return nullptr;
}

void* Process::StartProxyOperation(void* task, int pid) {
  if (Salt() == 0) return nullptr;
  if (pid != pid_) return CountLoss(Loss::kForeignProcess), nullptr;
  const Handle handle = Handle::From(task);
  if (IsOurs(handle) && handle.Kind() == HandleKind::kUnfollowed) return nullptr;
  Communicator* communicator = Owner(handle, HandleKind::kOperation);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle), nullptr;
  if (communicator->source() != TimingSource::kProxy && communicator->call_groups().sampler() == nullptr)
    return nullptr;
  return communicator->parts().StartProxy(handle.Ticket()) ? handle.As(HandleKind::kProxyOperation).Pointer() : nullptr;
}

// Phases of a kernel.

void* Process::StartKernelPhase(void* channel, uint32_t phase, uint64_t gpu_ns) {
  const Handle handle = Handle::From(channel);
  if (handle.bits == 0) return nullptr;  // its channel was refused
  Communicator* communicator = Owner(handle, HandleKind::kKernelChannel);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle), nullptr;
  const bool is_followed = communicator->parts().StartPhase(handle.Ticket(), handle.Channel(), phase, gpu_ns);
  return is_followed ? handle.As(HandleKind::kKernelPhase).Pointer() : nullptr;
}

void Process::StopKernelPhase(void* phase, uint64_t gpu_ns) {
  const Handle handle = Handle::From(phase);
  Communicator* communicator = Owner(handle, HandleKind::kKernelPhase);
  if (communicator == nullptr) return CountLoss(Loss::kUnknownHandle);
  communicator->parts().StopPhase(handle.Ticket(), gpu_ns);
}

// Stops.

void Process::StopOther(Handle handle) {
  if (handle.bits == 0) return;
  switch (KindOf(handle)) {
    case HandleKind::kUntimedCall:
    case HandleKind::kCapturedCall:
    case HandleKind::kUnfollowed:
    case HandleKind::kKernelPhase:
      return;
    case HandleKind::kGroupApi:
      if (Communicator* communicator = OwnerOf(handle);
          communicator != nullptr && communicator->call_groups().sampler() != nullptr) {
        EndCallGroup(handle, *communicator);
      }
      return;
    case HandleKind::kGroup:
      if (Communicator* communicator = OwnerOf(handle)) return communicator->CloseLaunch(handle.Ticket());
      break;
    case HandleKind::kProxyOperation:
      if (Communicator* communicator = OwnerOf(handle)) return communicator->parts().StopProxy(handle.Ticket());
      break;
    default:
      break;
  }
  CountLoss(Loss::kUnknownHandle);
}

}  // namespace nccl_exporter
