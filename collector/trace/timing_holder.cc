// SPDX-License-Identifier: Apache-2.0
#include "collector/trace/timing_holder.h"

#include <utility>

namespace nccl_exporter::collector {

TimingHolder::TimingHolder(int64_t begin_realtime_ns, int64_t end_realtime_ns,
                           std::function<bool(const ProcessSnapshot&)> is_wanted)
    : request_{.level = trace_ring::Level::kWindows,
               .begin_realtime_ns = begin_realtime_ns,
               .end_realtime_ns = end_realtime_ns,
               .communicator = {}},
      is_wanted_(std::move(is_wanted)) {}

void TimingHolder::Ask(const NodeSnapshot& snapshot, const SegmentLooks& looks) {
  for (const ProcessSnapshot& process : snapshot.processes) {
    const auto look = looks.find(process.file);
    if (look == looks.end() || !process.is_alive || !is_wanted_(process)) continue;
    const auto [found, is_new] = asked_.try_emplace(process.file);
    if (!is_new) continue;
    Asked& asked = found->second;
    asked.memory =
        TraceMemory::Open(look->second.file->FindWriter().pid,
                          process.start_monotonic_ns + process.clock_offset_ns, asked.fault);
    if (asked.memory != nullptr && !asked.memory->Ask(request_, asked.fault)) asked.memory.reset();
  }
}

std::map<FileKey, std::string> TimingHolder::Faults() const {
  std::map<FileKey, std::string> faults;
  for (const auto& [file, asked] : asked_)
    faults[file] = asked.memory == nullptr ? asked.fault : AnswerText(asked.memory->answer());
  return faults;
}

}  // namespace nccl_exporter::collector
