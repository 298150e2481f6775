// SPDX-License-Identifier: Apache-2.0
// The plugin's settings: environment variables in one table, read once per process, at the first
// init.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plugin/nccl/event_policy.h"

namespace nccl_exporter::plugin {

inline constexpr size_t kOptionCount = 9;

struct Options {
  bool enable = true;
  const char* directory = nullptr;  // into the environment; nullptr: by default rule
  KernelTiming kernel_timing = KernelTiming::kAuto;
  uint32_t communicators = 256;  // of the process; parallel layouts use tens
  uint64_t retention_ns = 300'000'000'000;
  const char* labels = nullptr;  // into the environment: a list of user_labels.h; nullptr: none
  // Share of time in which proxy operations are timed, in millionths; 0: never.
  uint32_t network_share_ppm = 100'000;
  uint64_t network_period_ns = 2'000'000'000;  // of the windows, one in each
  uint64_t chain_budget_ppm = 250'000;         // of one CPU's time, for a chained plugin

  // Variables whose value was not understood, in the table's order, up to the first nullptr; their
  // defaults are in force.
  std::array<const char*, kOptionCount> rejected{};
};

// Variables of former versions, which do nothing now.
inline constexpr const char* kFormerVariables[]{"NCCL_EXPORTER_KERNEL_PHASES",
                                                "NCCL_EXPORTER_NETWORK_CLOCK",
                                                "NCCL_EXPORTER_NETWORK_PEERS",
                                                "NCCL_EXPORTER_SAMPLING",
                                                "NCCL_EXPORTER_SAMPLING_LEARNING_SECONDS",
                                                "NCCL_EXPORTER_SAMPLING_PERIOD_SECONDS",
                                                "NCCL_EXPORTER_TRACE"};

struct OptionRow {
  const char* name;
  const char* default_text;
  const char* help;
  bool (*store)(const char* text,
                Options& options);  // false, and nothing stored, where `text` is no value of it
};
// Visible, because `doctor` reads it from another library. The plugin exports it nowhere.
[[gnu::visibility("default")]] extern const std::array<OptionRow, kOptionCount> kOptions;

// `get` answers like getenv.
Options ReadOptions(const char* (*get)(const char* name));

}  // namespace nccl_exporter::plugin
