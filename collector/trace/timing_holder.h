// SPDX-License-Identifier: Apache-2.0
// TimingHolder, which asks processes to keep their windows of kernel and network timing open until
// a moment. The requests end with it. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "collector/node_snapshot.h"
#include "collector/segments/segment_look.h"
#include "collector/trace/trace_memory.h"

namespace nccl_exporter::collector {

class TimingHolder {
 public:
  // From `begin_realtime_ns` to `end_realtime_ns`, a minute at most: a plugin refuses more.
  TimingHolder(int64_t begin_realtime_ns, int64_t end_realtime_ns,
               std::function<bool(const ProcessSnapshot&)> is_wanted);

  // Asks the processes that live, are wanted and have not been asked. `looks` are of the same
  // moment as `snapshot`.
  void Ask(const NodeSnapshot& snapshot, const SegmentLooks& looks);

  // Of each process that was asked: why it has not taken the request; empty: it has.
  std::map<FileKey, std::string> Faults() const;

 private:
  struct Asked {
    std::unique_ptr<TraceMemory> memory;  // nullptr: `fault` says why
    std::string fault;
  };

  const TraceMemory::Request request_;
  const std::function<bool(const ProcessSnapshot&)> is_wanted_;
  std::map<FileKey, Asked> asked_;
};

}  // namespace nccl_exporter::collector
