// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/timing/timing_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "exporter/findings/words.h"
#include "exporter/series/labels/series_labels.h"
#include "proto/timing_source.h"

namespace nccl_exporter::exporter {
namespace {

using collector::CommunicatorSnapshot;
using collector::NodeSnapshot;
using collector::ProcessSnapshot;

struct Counts {
  uint64_t completed = 0;
  uint64_t timed = 0;
  uint64_t network_operations = 0;
};

Counts CountsOf(const CommunicatorSnapshot& communicator) {
  Counts counts;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (!communicator.functions.IsInUse(i)) continue;
    const collector::FunctionSnapshot& function = communicator.functions[i];
    counts.completed += function.completed;
    for (const collector::SizeClassSnapshot& size : function.sizes)
      counts.timed += size.timed_operations;
  }
  if (!communicator.network) return counts;
  for (const collector::NetworkDirectionCounts& direction : communicator.network->directions)
    counts.network_operations += direction.operations;
  return counts;
}

// By file, slot and its generation.
using Place = std::tuple<collector::FileKey, uint64_t, uint64_t>;

std::map<Place, Counts> CountsOf(const NodeSnapshot& node) {
  std::map<Place, Counts> counts;
  for (const ProcessSnapshot& process : node.processes) {
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      counts[{process.file, communicator.slot, communicator.generation}] = CountsOf(communicator);
    }
  }
  return counts;
}

std::string KernelText(const CommunicatorSnapshot& communicator) {
  const TimingReason reason = communicator.timing_reason;
  const SamplingReason why = communicator.sampling_reason;
  const bool is_off = communicator.timing_source == TimingSource::kNone;
  if (is_off && reason != TimingReason::kSamplingFrozen)
    return fmt::format("stays off: {} ({})", NameOf(reason), RowIn(kTimingReasons, reason).meaning);
  switch (communicator.sampling_state) {
    case SamplingState::kWindows:
      return "was kept on";
    case SamplingState::kLearning:
      return "is on until its windows begin";
    case SamplingState::kFrozen:
      return fmt::format("stays {}: frozen, {} ({})", is_off ? "off" : "on", NameOf(why),
                         RowIn(kSamplingReasons, why).meaning);
    case SamplingState::kNone:
    case SamplingState::kCount:
      break;
  }
  return "is always on";
}

std::string NetworkText(const CommunicatorSnapshot& communicator) {
  if (communicator.network_share_ppm == 0)
    return "stays off: NCCL_EXPORTER_NETWORK_TIMING=off, or the release has no events of steps";
  return communicator.network_share_ppm == kWholeDutyPpm ? "is always on" : "was kept on";
}

std::string NameOfProcess(const ProcessSnapshot& process) {
  const std::string rank = GlobalRank(process);
  return fmt::format("{}pid {}", rank.empty() ? "" : fmt::format("rank {}, ", Printable(rank)),
                     process.pid);
}

uint64_t More(uint64_t after, uint64_t before) { return after - std::min(after, before); }

}  // namespace

std::string TimingText(const NodeSnapshot& before, const NodeSnapshot& after,
                       const std::map<collector::FileKey, std::string>& faults) {
  const std::map<Place, Counts> counts_before = CountsOf(before);
  std::string text;
  for (const ProcessSnapshot& process : after.processes) {
    const auto fault = faults.find(process.file);
    if (fault == faults.end()) continue;
    const std::string name = NameOfProcess(process);
    if (!fault->second.empty()) {
      text += fmt::format("{}: nothing was changed: {}\n", name, PrintablePath(fault->second));
      continue;
    }
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.is_overflow || communicator.is_closed) continue;
      const auto found =
          counts_before.find({process.file, communicator.slot, communicator.generation});
      const Counts then = found != counts_before.end() ? found->second : Counts();
      const Counts now = CountsOf(communicator);
      text += fmt::format(
          "{}, {}: kernel timing {}; {} of {} operations timed; network timing {}; {} network "
          "operations timed\n",
          name, CommunicatorText(communicator.id, communicator.name), KernelText(communicator),
          More(now.timed, then.timed), More(now.completed, then.completed),
          NetworkText(communicator), More(now.network_operations, then.network_operations));
    }
  }
  return text;
}

}  // namespace nccl_exporter::exporter
