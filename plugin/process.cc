// SPDX-License-Identifier: Apache-2.0
#include "plugin/process.h"

#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "plugin/nccl/nccl_caller.h"
#include "plugin/segment/own_file.h"

namespace nccl_exporter::plugin {
namespace {

// Threads whose time is simulated may be behind the first one's.
constexpr uint64_t kClockMarginNs = 1'000'000'000;

const char* ProcessEnvironment(const char* name) { return std::getenv(name); }

// 0 where it is not known: no memory to rely on.
uint64_t SharedMemoryFreeBytes() {
  struct statvfs file_system {};
  if (statvfs("/dev/shm", &file_system) != 0) return 0;
  return uint64_t{file_system.f_bavail} * file_system.f_frsize;
}

uint16_t RandomSalt() {
  uint16_t salt = 0;
  if (!FillRandom(&salt, sizeof(salt))) salt = static_cast<uint16_t>(NowNs() >> 4);
  return salt != 0 ? salt : 1;
}

uint32_t RanksIn(const InitRequest& request) {
  return request.ranks > 0 ? static_cast<uint32_t>(request.ranks) : 0;
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

// The first communicator of the process makes the segment. Where that fails, NCCL runs as without a
// plugin: its log has the reason once, and every later call returns at once.
void Process::Start(const InitRequest& request) {
  mode_ = Mode::kOff;
  const auto info = [&](const char* format, auto... arguments) {
    Log(request.logger, abi::kLogInfo, format, arguments...);
  };
  const auto warn = [&](const char* format, auto... arguments) {
    Log(request.logger, abi::kLogWarn, format, arguments...);
  };
  options_ = ReadOptions(ProcessEnvironment);
  for (const char* name : options_.rejected) {
    if (name == nullptr) break;
    warn("nccl-exporter: value of %s not understood, its default is in force", name);
  }
  for (const char* name : kFormerVariables) {
    if (ProcessEnvironment(name) == nullptr) continue;
    info("nccl-exporter: %s is of a former version, and ignored", name);
  }
  if (!options_.enable) return info("nccl-exporter: off by NCCL_EXPORTER_ENABLE=0");
  char error[256];
  // This object is memory of zeros, mapped or wiped by a fork: no constructor has run.
  new (&segment_) Segment;
  if (!segment_.Create(options_, ProcessEnvironment, error, sizeof(error)))
    return warn("nccl-exporter: no metrics from this process: %s", error);
  NoteJob(request);
  segment_.Publish();
  communicators_.Open(segment_.slot_count());
  call_clock_.Open(NowNs() - kClockMarginNs);
  pid_ = getpid();
  capturing_threads_.Open();
  StoreRelaxed(host_may_announce_, IsLaunchBlocking(ProcessEnvironment("CUDA_LAUNCH_BLOCKING")));
  OpenOverflow();
  mode_ = Mode::kRunning;
  communicators_.StoreSalt(RandomSalt());
  if (segment_.is_on_disk()) {
    warn("nccl-exporter: %s is on a disk, whose writes may hold up operations", segment_.path());
  }
  info("nccl-exporter %s: segment %s", kPluginVersion, segment_.path());
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
}

void Process::OpenChain(const InitRequest& request) {
  if (Chain::library == nullptr || request.api_version < 4 || has_looked_for_chain_) return;
  has_looked_for_chain_ = true;
  uint16_t salt = RandomSalt();
  if (salt == communicators_.Salt()) salt = static_cast<uint16_t>(salt % 0xffff + 1);
  const char* const error =
      chain_.Open(request.api_version, salt, options_.chain_budget_ppm,
                  mode_ == Mode::kRunning ? &segment_.header()->chain : nullptr);
  if (error != nullptr) {
    return Log(request.logger, abi::kLogWarn,
               "nccl-exporter: NCCL_EXPORTER_CHAIN=%s is not in force: %s", Chain::library, error);
  }
  Log(request.logger, abi::kLogInfo, "nccl-exporter: chained plugin %s, profiler API v%d",
      chain_.name(), chain_.VersionFor(request.api_version));
}

void Process::Init(const InitRequest& request, void** context, int* mask) {
  {
    Locked locked(&lock_);
    if (mode_ == Mode::kNotStarted) Start(request);
    OpenChain(request);
  }
  void* theirs = nullptr;
  const bool is_chained = chain_.Init(request, &theirs);  // without the lock, as NCCL would
  *context = InitOwn(request, mask, is_chained);
  if (is_chained) *context = chain_.Join(*context, theirs, request.logger);
}

void* Process::InitOwn(const InitRequest& request, int* mask, bool is_chained) {
  Locked locked(&lock_);
  if (mode_ == Mode::kOff && !is_chained) return nullptr;
  EventPolicy& policy = Decide(request, mask);
  if ((policy.mask & abi::kKernelCh) != 0 && options_.kernel_timing == KernelTiming::kAuto)
    KeepRoomForPools(request, policy);
  // All communicators share the mask, also those that it follows.
  const int chained = chain_.pool() != nullptr ? chain_.Grant(request, policy) : 0;
  if (mode_ == Mode::kOff) return __atomic_store_n(mask, chained, __ATOMIC_RELAXED), nullptr;
  NoteJob(request);
  Loss why = Loss::kNoFreeCommunicatorSlot;
  const uint32_t slot = communicators_.Claim(segment_, options_.retention_ns, &why);
  const bool is_alone = !communicators_.IsOverflow(slot);
  if (!is_alone) CountLoss(why);
  const bool is_overridden = EndIfOverridden(mask);
  if (!is_overridden) __atomic_store_n(mask, policy.mask | chained, __ATOMIC_RELAXED);
  // Before API v4 the number of nodes is not known: such a communicator costs memory only.
  if (is_alone && policy.may_time_network && request.nodes != 1) JoinNetwork(slot, mask, policy);
  for (NetworkWindows& windows : network_windows_) {
    if (windows.Serves(mask)) windows.StoreBit();
  }
  if (!is_alone) {
    // The context carries the number of ranks, which the shared slot cannot.
    return Handle::Of(communicators_.Salt(), HandleKind::kContext, slot, RanksIn(request))
        .Pointer();
  }
  void* const context = OpenSlot(slot, request, policy).Pointer();
  if (is_overridden) {
    communicators_.InSlot(slot)->EndKernelTiming(TimingReason::kMaskOverride);
  } else if (policy.is_mask_watched) {
    communicators_.InSlot(slot)->WatchMask(mask, policy.mask, policy.shared_bits);
  }
  return context;
}

// Where there is none for those of another communicator, kernel timing ends.
void Process::KeepRoomForPools(const InitRequest& request, EventPolicy& policy) {
  PoolRoom room{.bytes_at_first_init = shared_memory_at_first_init_,
                .bytes = SharedMemoryFreeBytes(),
                .communicators = 1,
                .local_ranks = local_ranks_};
  communicators_.ForEach([&](const Communicator&) { ++room.communicators; });
  if (HasRoomForPools(room)) return;
  WithdrawKernelEvents(policy);
  communicators_.ForEach([](Communicator& communicator) {
    if (communicator.ReadsKernels()) communicator.EndKernelTiming(TimingReason::kSharedMemoryLow);
  });
  Log(request.logger, abi::kLogWarn,
      "nccl-exporter: kernel timing ends: %llu MiB of /dev/shm are free, and NCCL takes 33 for "
      "each communicator and rank",
      static_cast<unsigned long long>(room.bytes >> 20));
}

EventPolicy& Process::Decide(const InitRequest& request, const void* address_in_nccl) {
  const int api_version = request.api_version;
  const int nccl_version = FindNcclVersion(address_in_nccl);
  EventPolicy* policy = &policies_[0];
  for (; policy->api_version != 0 && policy != &policies_.back(); ++policy) {
    if (policy->api_version == api_version && policy->nccl_version == nccl_version) return *policy;
  }
  const LocalRanks local_ranks = FindLocalRanks(ProcessEnvironment, request.ranks, request.nodes);
  if (policy == &policies_[0]) {
    shared_memory_at_first_init_ = SharedMemoryFreeBytes();
    local_ranks_ = local_ranks.on_node;
  }
  *policy = DecideEvents(
      {.api_version = api_version,
       .nccl_version = nccl_version,
       .kernel_timing = options_.kernel_timing,
       .shared_memory_free_bytes = SharedMemoryFreeBytes(),
       .local_ranks = local_ranks.on_node,
       .allgatherv_is_off = IsAllgathervOff(ProcessEnvironment),
       .milli_cpus_per_rank = MilliCpusPerRank(ReadCpuAllowance(), local_ranks),
       .weak_exchange_may_fail = kWeakExchangeMayFail,
       .may_register_nvls_buffers = !AreNvlsBuffersOff(ProcessEnvironment) && MayMulticast(),
       .shares_resources = SharesResources(ProcessEnvironment),
       .is_chained = chain_.pool() != nullptr});
  return *policy;
}

void Process::NoteJob(const InitRequest& request) {
  layout::SegmentHeader* header = segment_.header();
  if (HasMoreRanksThanProcesses(ProcessEnvironment, request.ranks, request.nodes))
    StoreRelaxed(header->rank_numbers_process, 1);
  if (request.ranks > 1 && LoadRelaxed(header->first_communicator) == 0)
    StoreRelaxed(header->first_communicator, request.id);
}

// Everything is written before the state says that the slot lives: a reader that sees the state
// sees the rest.
Handle Process::OpenSlot(uint32_t index, const InitRequest& request, const EventPolicy& policy) {
  const uint64_t generation = communicators_.NextGeneration(index);
  layout::CommunicatorSlot* slot = segment_.slot(index);
  slot->api_version = static_cast<uint64_t>(request.api_version);
  slot->nccl_version = static_cast<uint64_t>(policy.nccl_version);
  slot->event_mask = static_cast<uint64_t>(policy.mask);
  slot->timing_source = static_cast<uint64_t>(policy.source);
  slot->timing_reason = static_cast<uint64_t>(policy.reason);
  slot->created_monotonic_ns = NowNs();
  slot->created_realtime_ns = ReadClock(CLOCK_REALTIME);
  slot->communicator_id = request.id;
  slot->rank = static_cast<uint64_t>(request.rank);
  slot->ranks = RanksIn(request);
  slot->nodes = request.nodes > 0 ? static_cast<uint64_t>(request.nodes) : 0;
  slot->has_identity = request.is_known ? 1 : 0;
  CopyUncertainText(slot->name, sizeof(slot->name), request.name);
  const GpuIdentity gpu = FindGpu(ProcessEnvironment);
  slot->gpu_index = static_cast<uint64_t>(gpu.index + 1);
  CopyText(slot->gpu_uuid, sizeof(slot->gpu_uuid), gpu.uuid);
  CopyText(slot->pci_bus_id, sizeof(slot->pci_bus_id), gpu.pci_bus_id);
  NoteGpu(gpu);
  const RankNumbers numbers = FindRankNumbers(ProcessEnvironment);
  slot->global_rank = static_cast<uint64_t>(numbers.global_rank + 1);
  slot->local_rank = static_cast<uint64_t>(numbers.local_rank + 1);
  slot->world_size = static_cast<uint64_t>(numbers.world_size);

  communicators_.InSlot(index)->Open({policy.source, request.rank, RanksIn(request), slot,
                                      segment_.header(), policy.causes,
                                      policy.times_are_on_probation, request.is_known});
  const Handle context = communicators_.OpenSlot(index);
  StoreRelease(slot->state, layout::StateWord(generation, layout::SlotState::kLive));
  return context;
}

// A process with several GPUs has several ranks of the job: its rank variables then number the
// process, not a rank, for good, since a label that comes back breaks series.
void Process::NoteGpu(const GpuIdentity& gpu) {
  if (gpu.index < 0 && gpu.uuid[0] == '\0') return;
  if (!has_gpu_) {
    has_gpu_ = true;
    first_gpu_ = gpu;
  } else if (gpu.index != first_gpu_.index || std::strcmp(gpu.uuid, first_gpu_.uuid) != 0) {
    StoreRelaxed(segment_.header()->rank_numbers_process, 1);
  }
}

void Process::JoinNetwork(uint32_t index, int* mask, const EventPolicy& policy) {
  if (options_.network_share_ppm == 0) return;
  const auto find = [this](const auto& fits) {
    return std::find_if(network_windows_.begin(), network_windows_.end(), fits);
  };
  auto windows = find([mask](const NetworkWindows& each) { return each.Serves(mask); });
  if (windows == network_windows_.end())
    windows = find([](const NetworkWindows& each) { return !each.IsInUse(); });
  Communicator& communicator = *communicators_.InSlot(index);
  if (communicator.network_room() == nullptr)
    communicator.SetNetworkRoom(MakeMapped<NetworkTimer>());
  NetworkTimer* const timer = communicator.network_room();
  if (windows == network_windows_.end() || timer == nullptr) return;
  if (!windows->IsInUse()) {
    windows->Open(mask, policy.mask, policy.shared_bits, chain_.wish(),
                  {options_.network_period_ns, options_.network_share_ppm});
  }
  windows->Join();
  timer->Open(segment_.slot(index), segment_.header(), windows);
  communicator.SetNetwork(timer);
}

void Process::LeaveNetwork(Communicator& communicator) {
  NetworkTimer* const timer = communicator.network();
  if (timer == nullptr) return;
  communicator.SetNetwork(nullptr);
  timer->Finalize();
  timer->windows().Leave();
}

// Handles that NCCL still holds afterwards carry the former generation, and are refused.
void Process::Finalize(void* context) {
  if (context == nullptr) return;
  const uint32_t index = Handle::From(context).Slot();
  Locked locked(&lock_);
  Communicator* const communicator = Find(Handle::From(context));
  if (communicator == nullptr || communicators_.IsOverflow(index)) return;
  communicators_.CloseSlot(index);
  communicator->UnwatchMask();
  communicator->Finalize();
  LeaveNetwork(*communicator);
  const uint64_t now_ns = NowNs();
  const uint64_t generation = communicators_.NoteFinalized(index, now_ns);
  layout::CommunicatorSlot* slot = segment_.slot(index);
  StoreRelaxed(slot->closed_monotonic_ns, now_ns);
  StoreRelease(slot->state, layout::StateWord(generation, layout::SlotState::kClosed));
}

void Process::CountLoss(Loss loss) {
  if (communicators_.Salt() != 0)
    AddRelaxed(segment_.header()->losses[static_cast<uint8_t>(loss)], 1);
}

bool Process::EndIfOverridden(const int* mask) {
  bool is_overridden = false;
  communicators_.ForEach([&](Communicator& communicator) {
    if (communicator.OverriddenMask() != mask) return;
    is_overridden = true;
    StoreRelaxed(host_may_announce_, true);
    communicator.EndKernelTiming(TimingReason::kMaskOverride);
  });
  return is_overridden;
}

void Process::CheckMask(const Communicator& communicator) {
  if (const int* const mask = communicator.OverriddenMask()) EndIfOverridden(mask);
}

}  // namespace nccl_exporter::plugin
