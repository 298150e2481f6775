// SPDX-License-Identifier: Apache-2.0
// Incidents in a running job: faults that an alert should report, and disturbances that should
// raise no alert. One row each, with its settings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/code_table.h"
#include "simulator/workload/cluster_shape.h"

namespace nccl_exporter::sim {

enum class IncidentKind : uint8_t {
  kSlowRank,
  kSlowGpu,
  kSlowNode,
  kSlowLink,
  kSlowAdapter,
  kSlowReceiver,
  kSlowFlush,
  kMissingCall,
  kMismatchedCall,
  kKill,
  kStop,
  kNetworkHang,
  kUneven,
  kMoving,
  kVarying,
  kWarmUp,
  kPause,
  kSpikes,
  kEvaluation,
  kClockStep,
  kCount
};

// Those of times are seconds; -1 where an incident is not limited by it.
enum class Setting : uint8_t {
  kRank,
  kNode,
  kTo,
  kPercent,
  kTimes,
  kSeconds,
  kFrom,
  kUntil,
  kEvery,
  kFor,
  kRamp,
  kCount
};
inline constexpr size_t kSettingCount = kCountOf<Setting>;

struct Incident {
  IncidentKind kind{};
  std::array<double, kSettingCount> settings{};

  double operator[](Setting setting) const { return settings[static_cast<size_t>(setting)]; }
  int rank() const { return static_cast<int>((*this)[Setting::kRank]); }
  int node() const { return static_cast<int>((*this)[Setting::kNode]); }
  int to() const { return static_cast<int>((*this)[Setting::kTo]); }
  int64_t from_ns() const { return Ns((*this)[Setting::kFrom]); }
  int64_t for_ns() const { return Ns((*this)[Setting::kFor]); }

  // Whether it concerns a rank: by `rank`, by `node`, or because neither is set.
  bool Concerns(int a_rank, const ClusterShape& shape) const;
  // Strength of the incident at a time of the job, 0 to 1: nothing before `from`, after `until`,
  // and outside of the first `for` of `every`; grows during `ramp`.
  double Strength(int64_t job_ns) const;
  // Number of the moments `from`, `from` + `every`, and so on in (after_ns, until_ns].
  int64_t StrikesBetween(int64_t after_ns, int64_t until_ns) const;

  static int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }
};

struct IncidentTraits {
  IncidentKind id;
  std::string_view name;
  std::string_view settings;  // those that it has, as NAME=STANDARD
  std::string_view help;
};

const IncidentTraits& TraitsOf(IncidentKind kind);

// `text` is NAME:SETTING=VALUE,SETTING=VALUE. `error` says what is wrong.
std::optional<Incident> ParseIncident(std::string_view text, const ClusterShape& shape,
                                      std::string& error);

// The table, for --help.
std::string IncidentHelp();

}  // namespace nccl_exporter::sim
