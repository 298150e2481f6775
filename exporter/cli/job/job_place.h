// SPDX-License-Identifier: Apache-2.0
// JobPlace, what the labels of one series name: a rank of a communicator, a communicator or a node.
// Pure, for any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "exporter/cli/job/prometheus.h"

namespace nccl_exporter::exporter {

// Labels of a process that are the same in all of its series. Its pid is that of its own PID
// namespace: the processes of several pods on a node may all be pid 1.
inline constexpr std::string_view kProcessLabels = "instance, pod, container, pid, global_rank";

// Each may be empty.
struct JobPlace {
  std::string comm = {};
  std::string comm_name = {};
  std::string rank = {};  // in the communicator
  std::string global_rank = {};
  std::string gpu = {};
  std::string node = {};
  std::string instance = {};
  std::string pid = {};
  std::string pod = {};
  std::string container = {};

  auto operator<=>(const JobPlace&) const = default;
};

JobPlace PlaceOf(const Sample& sample);

// kProcessLabels.
using ProcessKey = std::array<std::string, 5>;
ProcessKey ProcessOf(const JobPlace& place);

// A process and one of its GPUs: what waits, or does not. That of a node has its instance alone.
using GpuKey = std::pair<ProcessKey, std::string>;
GpuKey GpuOf(const JobPlace& place);

// Ranks are texts of digits: by number, and others by text.
std::tuple<uint64_t, std::string> Order(const std::string& text);

// Whether it is a process, or a rank of one: not a node, a communicator or a target.
bool NamesProcess(const JobPlace& place);
// "global rank 3"; where that is not known "rank 3", or "process 1003" without a communicator;
// "node gpu-1" without a process.
std::string RankName(const JobPlace& place);
// The user's name of the communicator, or the begin of its id.
std::string CommunicatorName(const std::string& id, const std::string& name);

}  // namespace nccl_exporter::exporter
