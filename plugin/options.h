// SPDX-License-Identifier: Apache-2.0
// The plugin's settings: environment variables in one table, read once per process, at the first init.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/nccl/event_policy.h"

namespace nccl_exporter {

struct OptionRow {
  const char* name;
  const char* default_text;
  const char* help;
};

inline constexpr std::array<OptionRow, 9> kOptions{{
    {"NCCL_EXPORTER_ENABLE", "1", "0 switches the plugin off: NCCL is asked for nothing"},
    {"NCCL_EXPORTER_DIR", "",
     "directory of the segments, shared with the daemon; default /run/nccl-exporter or /dev/shm/nccl-exporter if it "
     "can be written and trusted, else /dev/shm/nccl-exporter-UID"},
    {"NCCL_EXPORTER_KERNEL_TIMING", "auto",
     "GPU time stamps: auto (where they are cheap and true, and safe for the job), on (wherever they are safe), off"},
    {"NCCL_EXPORTER_COMMUNICATORS", "256",
     "communicators of one process with counters of their own, 1 to 4095; further ones share the overflow slot"},
    {"NCCL_EXPORTER_RETENTION_SECONDS", "300",
     "for how long a finalized communicator keeps its slot, 1 to 86400; no shorter than the daemon's retention"},
    {"NCCL_EXPORTER_SAMPLING", "always",
     "which operations GPU time stamps are taken of: always (all), off (none, as with "
     "NCCL_EXPORTER_KERNEL_TIMING=off), "
     "or those in windows of time: the windows' share of the time, 0.001 to 1"},
    {"NCCL_EXPORTER_SAMPLING_PERIOD_SECONDS", "2",
     "with windows: time in which there is one window, 0.1 to 3600; the same on all ranks"},
    {"NCCL_EXPORTER_SAMPLING_LEARNING_SECONDS", "600",
     "with windows: time from the first communicator on in which all operations are timed, 0 to 86400"},
    {"NCCL_EXPORTER_KERNEL_PHASES", "0",
     "1: the phases of kernels over symmetric windows (NCCL 2.32, with kernel timing); each such kernel then waits for "
     "a "
     "memory fence"},
}};

enum class Sampling : uint8_t { kAlways, kWindows };  // NCCL_EXPORTER_SAMPLING

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

  std::array<bool, kOptions.size()> is_rejected{};  // by row: the value was not understood, its default is in force
};

// `get` answers like getenv.
Options ReadOptions(const char* (*get)(const char* name));

}  // namespace nccl_exporter
