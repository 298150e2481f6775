// SPDX-License-Identifier: Apache-2.0
#include "plugin/options.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "proto/timing_source.h"
#include "proto/user_labels.h"

namespace nccl_exporter::plugin {
namespace {

// A decimal number in units of 10^-decimals: digits, and up to so many after a point. No locale has
// a say in it.
bool ParseNumber(const char* text, const char* end, int decimals, uint64_t least, uint64_t most,
                 uint64_t* units) {
  constexpr int kMostDigits = 12;
  uint64_t value = 0;
  int digits = 0;
  bool has_point = false;
  for (; text != end; ++text) {
    if (*text == '.' && !has_point && decimals > 0) {
      has_point = true;
      continue;
    }
    if (*text < '0' || *text > '9' || digits == kMostDigits || (has_point && decimals == 0))
      return false;
    value = value * 10 + static_cast<uint64_t>(*text - '0');
    ++digits;
    decimals -= has_point ? 1 : 0;
  }
  for (; decimals > 0; --decimals) value *= 10;
  if (digits == 0 || value < least || value > most) return false;
  *units = value;
  return true;
}

template <auto kTarget, uint64_t kLeast, uint64_t kMost, uint64_t kUnit = 1>
bool StoreWhole(const char* text, Options& options) {
  uint64_t number = 0;
  if (!ParseNumber(text, text + std::strlen(text), 0, kLeast, kMost, &number)) return false;
  auto& target = options.*kTarget;
  target = static_cast<std::remove_reference_t<decltype(target)>>(number * kUnit);
  return true;
}

bool StoreDirectory(const char* text, Options& options) { return options.directory = text, true; }

// By its name in a table.
template <auto kTarget, const auto& kNames>
bool StoreNamed(const char* text, Options& options) {
  for (const auto& [name, value] : kNames) {
    if (std::strcmp(text, name) == 0) return options.*kTarget = value, true;
  }
  return false;
}

constexpr std::pair<const char*, KernelTiming> kKernelTimings[]{
    {"auto", KernelTiming::kAuto}, {"on", KernelTiming::kOn}, {"off", KernelTiming::kOff}};
constexpr std::pair<const char*, uint32_t> kNetworkShares[]{
    {"auto", Options{}.network_share_ppm}, {"always", kWholeDutyPpm}, {"off", 0}};

// A name, or SHARE, or SHARE/SECONDS.
bool StoreNetworkTiming(const char* text, Options& options) {
  constexpr uint64_t kLeastSharePpm = 1000;
  constexpr uint64_t kLeastPeriodUs = 100'000, kMostPeriodUs = 3600'000'000;
  if (StoreNamed<&Options::network_share_ppm, kNetworkShares>(text, options)) return true;
  const char* const end = text + std::strlen(text);
  const char* const slash = std::find(text, end, '/');
  uint64_t share_ppm = 0, period_us = options.network_period_ns / 1000;
  if (!ParseNumber(text, slash, 6, kLeastSharePpm, kWholeDutyPpm, &share_ppm)) return false;
  if (slash != end && !ParseNumber(slash + 1, end, 6, kLeastPeriodUs, kMostPeriodUs, &period_us))
    return false;
  options.network_share_ppm = static_cast<uint32_t>(share_ppm);
  return options.network_period_ns = period_us * 1000, true;
}

bool StoreLabels(const char* text, Options& options) {
  if (!IsUserLabelList(text)) return false;
  return options.labels = text, true;
}

constexpr uint64_t kSecondNs = 1'000'000'000;

}  // namespace

constexpr std::array<OptionRow, kOptionCount> kOptions{{
    {"NCCL_EXPORTER_ENABLE", "1", "0 switches the plugin off: it requests no events from NCCL",
     StoreWhole<&Options::enable, 0, 1>},
    {"NCCL_EXPORTER_DIR", "",
     "directory of the segments, shared with the daemon; default /run/nccl-exporter or "
     "/dev/shm/nccl-exporter if it can be written and trusted, else /dev/shm/nccl-exporter-UID",
     StoreDirectory},
    {"NCCL_EXPORTER_KERNEL_TIMING", "auto",
     "GPU time stamps: auto (if they are cheap, correct and safe for the job), on (if they are "
     "safe), off",
     StoreNamed<&Options::kernel_timing, kKernelTimings>},
    {"NCCL_EXPORTER_COMMUNICATORS", "256",
     "number of communicators of a process that have their own counters, 1 to 4095; further ones "
     "share the overflow slot",
     StoreWhole<&Options::communicators, 1, 4095>},
    {"NCCL_EXPORTER_RETENTION_SECONDS", "300",
     "how long a finalized communicator keeps its slot, 1 to 86400, if there is another slot for a "
     "new one; no shorter than the daemon's retention",
     StoreWhole<&Options::retention_ns, 1, 86400, kSecondNs>},
    {"NCCL_EXPORTER_NETWORK_TIMING", "auto",
     "network operations whose waits are timed: auto (those in windows that cover a tenth of the "
     "time), always, off, or the share of the time, 0.001 to 1, with or without the period that "
     "has one window, in seconds: 0.1/2",
     StoreNetworkTiming},
    {"NCCL_EXPORTER_LABELS", "",
     "labels of the job's own on nccl_rank_info, such as team=x,run=y: at most 8, of at most 24 "
     "and 95 bytes",
     StoreLabels},
    {"NCCL_EXPORTER_CHAIN", "",
     "another profiler plugin that gets its events too: a name or a path, as for "
     "NCCL_PROFILER_PLUGIN; NCCL 2.27 or later",
     [](const char*, Options&) { return true; }},  // read when the library is loaded
    {"NCCL_EXPORTER_CHAIN_PERCENT", "25",
     "per cent of a CPU that its callbacks may take, 1 to 6400, before it gets no further events",
     StoreWhole<&Options::chain_budget_ppm, 1, 6400, 10'000>},
}};

Options ReadOptions(const char* (*get)(const char* name)) {
  Options options;
  const char** rejected = options.rejected.data();
  for (const OptionRow& row : kOptions) {
    const char* text = get(row.name);
    if (text == nullptr || text[0] == '\0' || row.store(text, options)) continue;
    *rejected++ = row.name;
  }
  return options;
}

}  // namespace nccl_exporter::plugin
