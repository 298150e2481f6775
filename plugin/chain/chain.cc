// SPDX-License-Identifier: Apache-2.0
#include "plugin/chain/chain.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "plugin/segment/own_file.h"

namespace nccl_exporter::plugin {
namespace {

// As NCCL opens the value of NCCL_PROFILER_PLUGIN (2.30.7 plugin/plugin_open.cc openPluginLib), but
// for STATIC_PLUGIN. `error` is why neither file was opened; under the process's lock.
void* OpenLibrary(std::string_view name, const char*& error) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  if (void* const library = dlopen(name.data(), kFlags)) return library;
  static std::array<char, 256> errors;
  std::snprintf(errors.data(), errors.size(), "%s", dlerror());
  error = errors.data();
  const bool is_file_name = name.starts_with("lib") && name.ends_with(".so");
  if (is_file_name || name.find('/') != name.npos) return nullptr;
  char file[255];
  std::snprintf(file, sizeof(file), "libnccl-profiler-%s.so", name.data());
  void* const library = dlopen(file, kFlags);
  const size_t length = std::strlen(error);
  if (library == nullptr) std::snprintf(&errors[length], errors.size() - length, "; %s", dlerror());
  return library;
}

}  // namespace

const char* Chain::Open(int api_version, uint16_t salt, uint64_t budget_ppm,
                        layout::ChainBlock* block) {
  const char* error = nullptr;
  void* const opened = OpenLibrary(library, error);
  if (opened != nullptr) error = FindTables(opened);
  if (error != nullptr) return error;
  if (VersionFor(api_version) == 0)
    return "it has no ncclProfiler_v4 or later, up to the version that NCCL calls";
  PairPool* const pool = MakeMapped<PairPool>();
  if (pool == nullptr) return "there is no memory for its handles";
  pool->Open(salt);
  pid_ = getpid();
  budget_ppm_ = budget_ppm;
  window_begin_ns_ = NowNs();
  StoreRelaxed(granted_, ~0);
  words_ = block != nullptr ? block : &own_words_;
  const char* const name = tables_[static_cast<size_t>(api_version)].name;
  std::snprintf(words_->name, sizeof(words_->name), "%s", name != nullptr ? name : library);
  Note(layout::kChainOpen);
  StoreRelease(pool_, pool);
  StoreRelease(instance_, this);
  return nullptr;
}

// For each version of NCCL's the newest one that the library has, up to it.
const char* Chain::FindTables(void* opened) {
  char symbol[] = "ncclProfiler_v4";
  for (size_t i = 4; i < kVersions; ++i, ++symbol[sizeof(symbol) - 2]) {
    tables_[i] = tables_[i - 1];
    versions_[i] = versions_[i - 1];
    const void* const object = dlsym(opened, symbol);
    if (object == nullptr) continue;
    ChainedTable& table = tables_[i];
    std::memcpy(&table, object, sizeof(table));
    if (table.name != nullptr && std::strcmp(table.name, kPluginName) == 0)
      return "it is this very plugin";
    if (!table.init || !table.start || !table.stop || !table.record || !table.finalize)
      return "a function of its table is null";
    versions_[i] = static_cast<int>(i);
  }
  return nullptr;
}

bool Chain::Init(const InitRequest& r, void** context) {
  const int version = VersionFor(r.api_version);
  if (pool() == nullptr || version == 0) return false;
  ReportBudget(r.logger);
  // Communicators that wait for this plugin's lock come here together. NCCL's example plugin gives
  // up if two do, so they go one after the other; not for long, as one may wait for another.
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  const bool is_locked = pthread_mutex_timedlock(&init_lock_, &until) == 0;
  using InitV4 = decltype(abi::ProfilerV4<abi::DescriptorV4>::init);
  using InitV5 = decltype(abi::ProfilerV5<abi::DescriptorV5>::init);
  void* const init = tables_[static_cast<size_t>(r.api_version)].init;
  const abi::Result result =
      version == 4 ? reinterpret_cast<InitV4>(init)(context, &wish_, r.name, r.id, r.nodes, r.ranks,
                                                    r.rank, r.logger)
                   : reinterpret_cast<InitV5>(init)(context, r.id, &wish_, r.name, r.nodes, r.ranks,
                                                    r.rank, r.logger);
  if (is_locked) pthread_mutex_unlock(&init_lock_);
  if (result == abi::kSuccess) return true;
  Log(r.logger, abi::kLogWarn,
      "nccl-exporter: init of the chained plugin %s returned %d: it gets no events of this "
      "communicator",
      name(), result);
  return false;
}

int Chain::Grant(const InitRequest& request, const EventPolicy& policy) {
  if (VersionFor(request.api_version) == 0) return 0;
  constexpr int kKernelEvents = abi::kKernelCh | abi::kKernelPhase;
  const int refused = (policy.mask & abi::kKernelCh) != 0 ? 0 : kKernelEvents;
  const int wish = __atomic_load_n(&wish_, __ATOMIC_RELAXED) &
                   static_cast<int>(KnownEvents(VersionFor(request.api_version)));
  granted_.fetch_and(~refused, std::memory_order_relaxed);
  if ((wish & refused) != 0 && Note(layout::kChainWithoutKernelEvents)) {
    Log(request.logger, abi::kLogWarn,
        "nccl-exporter: the chained plugin %s gets no kernel events: timing_reason %s", name(),
        NameOf(policy.reason).data());
  }
  return wish & ~refused;
}

void Chain::Finalize(int api_version, const Pair& context) {
  // NCCL 2.28 and later do not finalize a null context.
  if (context.theirs != nullptr || api_version == 4)
    tables_[static_cast<size_t>(api_version)].finalize(context.theirs);
  ReportBudget(reinterpret_cast<abi::Logger>(context.note));
}

void Chain::ReportBudget(abi::Logger logger) {
  Budget exceeded = Budget::kExceeded;
  if (!budget_.compare_exchange_strong(exceeded, Budget::kReported)) return;
  Log(logger, abi::kLogWarn,
      "nccl-exporter: the callbacks of the chained plugin %s took more than "
      "NCCL_EXPORTER_CHAIN_PERCENT: it gets no further events",
      name());
}

// The longest call of a window does not count: one that opens a file is no habit.
void Chain::Charge(uint64_t begin_ns, uint64_t end_ns) {
  constexpr uint64_t kSampleEvery = 64, kWindowNs = 10'000'000'000, kWindowSamples = 8;
  const uint64_t ns = end_ns - begin_ns;
  AddRelaxed(words_->callbacks, kSampleEvery);
  AddRelaxed(words_->ns, ns * kSampleEvery);
  const TryLock lock(&is_charging_);
  if (!lock) return;
  window_ns_ += ns;
  window_longest_ns_ = std::max(window_longest_ns_, ns);
  ++window_samples_;
  if (end_ns < window_begin_ns_ + kWindowNs || window_samples_ < kWindowSamples) return;
  const uint64_t budget_ns = (end_ns - window_begin_ns_) / 1'000'000 * budget_ppm_;
  Budget kept = Budget::kKept;
  if ((window_ns_ - window_longest_ns_) * kSampleEvery > budget_ns &&
      budget_.compare_exchange_strong(kept, Budget::kExceeded))
    Note(layout::kChainOverBudget);
  window_begin_ns_ = end_ns;
  window_ns_ = window_longest_ns_ = window_samples_ = 0;
}

}  // namespace nccl_exporter::plugin
