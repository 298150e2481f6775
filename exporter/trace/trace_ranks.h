// SPDX-License-Identifier: Apache-2.0
// TraceRanks, the global ranks of a trace, by which its processes are named: whatever names a rank
// of a communicator asks for its global rank here. Immutable, for any thread.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "exporter/trace/trace_place.h"

namespace nccl_exporter::exporter {

// Nothing if it is not known, or no number.
inline std::optional<uint64_t> GlobalRankOf(const collector::TracedProcess& process) {
  const std::string& text = process.global_rank;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

class TraceRanks {
 public:
  TraceRanks() = default;
  explicit TraceRanks(const TracedNodes& nodes) {
    VisitCommunicators(nodes, [&](const TracePlace& place, const auto& communicator) {
      const collector::TracedProcess& process = place.ProcessIn(nodes);
      const std::optional<uint64_t> global_rank = GlobalRankOf(process);
      if (global_rank && communicator.has_identity)
        ranks_[{NameOf(process, communicator), communicator.rank}] = *global_rank;
    });
  }

  // Global rank of a communicator's rank, which may be on another node. Nothing if the trace has no
  // process of it, or no global rank of that.
  std::optional<uint64_t> GlobalOf(const collector::TracedProcess& process,
                                   const collector::TracedCommunicator& communicator,
                                   uint64_t rank) const {
    const auto found = ranks_.find({NameOf(process, communicator), rank});
    return found == ranks_.end() ? std::nullopt : std::optional(found->second);
  }

  // "rank 11", as its process is named; else "communicator rank 3".
  std::string TextOf(const collector::TracedProcess& process,
                     const collector::TracedCommunicator& communicator, uint64_t rank) const {
    const std::optional<uint64_t> global = GlobalOf(process, communicator, rank);
    return global ? fmt::format("rank {}", *global) : fmt::format("communicator rank {}", rank);
  }

 private:
  std::map<std::pair<CommunicatorName, uint64_t>, uint64_t> ranks_;
};

}  // namespace nccl_exporter::exporter
