// SPDX-License-Identifier: Apache-2.0
// The faults of NCCL's kernel events that timestamp_fault_test plays: one row each, with what the
// plugin must make of it.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "proto/timing_source.h"

namespace nccl_exporter {

// Reading two clock ticks of 32 ns.
inline constexpr uint64_t kTicksNs = 64;
// Between the channels of one kernel at both ends: what an operation may seem shorter by when one
// channel is lost.
inline constexpr uint64_t kChannelSkewNs = 800 + kTicksNs;

// Outcome of the operations that the fault does not affect.
enum class Rest { kIsTimed, kMayBeUntimed };

struct FaultRow {
  const char* name;
  std::vector<std::string> options;
  std::vector<int> api_versions;
  Rest rest;
  const char* reason = nullptr;  // that the plugin must give, if only one fits; else null
  uint64_t tolerance_ns = kTicksNs;
  bool is_harmless = false;  // no event is lost or has another time than its own
  // Wrong durations that a rank may record before the fault can be detected: as long as all
  // channels of a launch show the time of one and the same later launch, nothing contradicts it.
  uint64_t most_wrong = 0;
  const char* layout = "ladder";
  bool has_kernel_events = true;  // the plugin asks for them
  // Reason of every communicator; nothing: any.
  std::optional<TimingReason> timing_reason = {};
  // The job's end is that of all its operations: none is shown in flight then.
  bool ends_all = false;
};

inline const FaultRow kFaultRows[] = {
    {"SelfSendDrift",
     {"--fault", "drift-self-send"},
     {4, 5, 6},
     Rest::kMayBeUntimed,
     nullptr,
     kTicksNs,
     false,
     0,
     "ladder-to-self"},
    {"GraphDrift", {"--fault", "drift-graph", "--graph"}, {4, 5, 6}, Rest::kMayBeUntimed, nullptr},
    {.name = "BroadcastDriftOn2_31",
     .options = {"--fault", "drift-broadcast", "--nccl-version", "23102", "--env",
                 "NCCL_ALLGATHERV_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .is_harmless = true,
     .has_kernel_events = false,
     .timing_reason = TimingReason::kAllgathervEnabled,
     .ends_all = true},
    {.name = "BroadcastDriftOn2_32",
     .options = {"--fault", "drift-broadcast", "--nccl-version", "23206", "--env",
                 "NCCL_ALLGATHERV_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .is_harmless = true,
     .has_kernel_events = false,
     .timing_reason = TimingReason::kAllgathervEnabled,
     .ends_all = true},
    {.name = "RasMask",
     .options = {"--fault", "ras-mask:every=20000000", "--nccl-version", "23206",
                 "--recreate-every", "50"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .timing_reason = TimingReason::kMaskOverride,
     .ends_all = true},
    {.name = "RasNone",
     .options = {"--fault", "ras-mask:every=20000000,mask=32", "--nccl-version", "23206"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .ends_all = true},
    {.name = "NullParents",
     .options = {"--nccl-version", "23206", "--env", "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .ends_all = true},
    {.name = "SymmetricEager",
     .options = {"--symmetric", "--nccl-version", "23206"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "single",
     .ends_all = true},
    {.name = "SymmetricFsdp",
     .options = {"--nccl-version", "23206", "--symmetric"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricAggregated",
     .options = {"--nccl-version", "23206", "--symmetric", "--aggregate", "3"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricCaptured",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricCapturedAmongOthers",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "ladder",
     .ends_all = true},
    {.name = "SymmetricCapturedAggregated",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph", "--aggregate", "3"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricNullParents",
     .options = {"--nccl-version", "23206", "--symmetric", "--env", "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricNullParentsAggregated",
     .options = {"--nccl-version", "23206", "--symmetric", "--aggregate", "3", "--env",
                 "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricNullParentsCaptured",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph", "--env",
                 "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {"HostAhead",
     {"--fault", "host-ahead"},
     {4, 5, 6, 7},
     Rest::kMayBeUntimed,
     nullptr,
     kTicksNs,
     false,
     2},
    {"DeviceAhead", {"--fault", "device-ahead"}, {4, 5, 6, 7}, Rest::kMayBeUntimed, nullptr},
    {"RingOverrun",
     {"--fault", "ring-overrun:late=40000000,every=50000000"},
     {4, 5, 6, 7},
     Rest::kMayBeUntimed,
     nullptr,
     kChannelSkewNs},  // a thread that catches up may be 64 launches further on one channel than on
                       // another
    {"LostStart", {"--fault", "lost-start"}, {4, 5, 6}, Rest::kIsTimed, nullptr},
    {"LostKernel", {"--fault", "lost-kernel"}, {4, 5, 6, 7}, Rest::kIsTimed, nullptr},
    {"Stuck",
     {"--fault", "stuck"},
     {4, 5, 6, 7},
     Rest::kMayBeUntimed,
     nullptr,
     kChannelSkewNs},  // of a Send or Receive it is not known that it lacks a channel
    {"Backwards", {"--fault", "backwards"}, {4, 5, 6, 7}, Rest::kIsTimed, "stop_before_start"},
    {"Zero", {"--fault", "zero"}, {4, 5, 6, 7}, Rest::kIsTimed, "zero_timestamp"},
    {"Equal", {"--fault", "equal"}, {4, 5, 6, 7}, Rest::kIsTimed, nullptr},
    {"JumpForward", {"--fault", "jump:by=5000000"}, {4, 5, 6, 7}, Rest::kMayBeUntimed, nullptr},
    {"JumpBack", {"--fault", "jump:by=-5000000"}, {4, 5, 6, 7}, Rest::kMayBeUntimed, nullptr},
    {"LatePoll",
     {"--fault", "ring-overrun:late=3000000,every=10000000"},
     {4, 5, 6, 7},
     Rest::kIsTimed,
     nullptr,
     kTicksNs,
     true},
    {"NoFault", {}, {4, 5, 6, 7}, Rest::kIsTimed, nullptr, kTicksNs, true},
};

struct Scenario {
  const FaultRow* row;
  int api_version;
};

inline void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.row->name << " on v" << scenario.api_version;
}

inline std::vector<Scenario> Scenarios() {
  std::vector<Scenario> scenarios;
  for (const FaultRow& row : kFaultRows) {
    for (const int api_version : row.api_versions) scenarios.push_back({&row, api_version});
  }
  return scenarios;
}

}  // namespace nccl_exporter
