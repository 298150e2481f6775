// SPDX-License-Identifier: Apache-2.0
// The plugin's settings: environment variables in one table, read once per process, at the first
// init.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plugin/nccl/event_policy.h"

namespace nccl_exporter::plugin {

inline constexpr size_t kOptionCount = 12;
// A table of peers in the segment has a block for each, and one for all others.
inline constexpr uint32_t kMostNetworkPeers = 31;

enum class Sampling : uint8_t { kAlways, kWindows };      // NCCL_EXPORTER_SAMPLING

struct Options {
  bool enable = true;
  const char* directory = nullptr;  // into the environment; nullptr: by default rule
  KernelTiming kernel_timing = KernelTiming::kAuto;
  uint32_t communicators = 256;
  uint64_t retention_ns = 300'000'000'000;
  Sampling sampling = Sampling::kAlways;
  uint32_t sampling_duty_ppm = 100'000;
  uint64_t sampling_period_ns = 2'000'000'000;
  uint64_t sampling_learning_ns = 600'000'000'000;
  bool kernel_phases = false;
  bool trace = true;  // a file in memory for requests
  // Share of time in which proxy operations are timed, in millionths; 0: never.
  uint32_t network_share_ppm = 100'000;
  uint32_t network_peers = 0;  // of a communicator that are counted each

  // Variables whose value was not understood, in the table's order, up to the first nullptr; their
  // defaults are in force.
  std::array<const char*, kOptionCount> rejected{};
};

// Variables of former versions, which do nothing now.
inline constexpr const char* kFormerVariables[]{"NCCL_EXPORTER_NETWORK_CLOCK"};

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
