// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/counter_clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace nccl_exporter::plugin {

// Hyper-V's page scales the TSC for all processors alike. kvm-clock scales it for each, and may
// stand for a TSC that the host does not vouch for.
bool CounterClock::KernelKeepsTimeByIt(const char* clock_source_file) {
#if defined(__x86_64__)
  constexpr const char* kSources[]{"tsc\n", "hyperv_clocksource_tsc_page\n"};
#elif defined(__aarch64__)
  constexpr const char* kSources[]{"arch_sys_counter\n"};
#else
  constexpr const char* kSources[]{"no counter"};
#endif
  const int file = open(clock_source_file, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char name[64];
  const ssize_t bytes = read(file, name, sizeof(name) - 1);
  close(file);
  if (bytes < 0) return false;
  name[bytes] = '\0';
  for (const char* source : kSources) {
    if (std::strcmp(name, source) == 0) return true;
  }
  return false;
}

// The reading that took least, of as many as it takes to have one that was not interrupted.
void CounterClock::Measure() {
  constexpr int kAttempts = 4;
  constexpr uint64_t kUninterrupted = kInterval >> 18;  // 4 millionths of the rate
  if (is_measuring_.exchange(true, std::memory_order_acquire)) return;
  Reading best{};
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < kAttempts && least > kUninterrupted; ++i) {
    const uint64_t before = Count();
    const uint64_t ns = NowNs();
    const uint64_t took = Count() - before;
    if (took >= least) continue;
    best = {before + took / 2, ns};
    least = took;
  }
  Take(best);
  is_measuring_.store(false, std::memory_order_release);
}

void CounterClock::Take(const Reading& reading) {
  const uint64_t counts = reading.count - LoadRelaxed(base_count_);
  const uint64_t ns = reading.ns - LoadRelaxed(base_ns_);
  const bool is_first = LoadRelaxed(base_ns_) == 0;
  // Another thread was faster.
  if (!is_first && (counts < kInterval || counts > ~kInterval)) return;
  StoreRelaxed(base_count_, reading.count);
  StoreRelaxed(base_ns_, reading.ns);
  if (is_first) return;
  // Of a counter that went back it is close to 0.
  const auto rate = static_cast<uint64_t>((Wide{ns} << kRateShift) / counts);
  const uint64_t latest = LoadRelaxed(latest_rate_);
  const uint64_t difference = rate > latest ? rate - latest : latest - rate;
  const bool agrees = difference <= latest / 1024;
  StoreRelaxed(latest_rate_, rate);
  StoreRelaxed(rate_, agrees ? rate : 0);
  if (!agrees) era_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace nccl_exporter::plugin
