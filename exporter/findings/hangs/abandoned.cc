// SPDX-License-Identifier: Apache-2.0
// Finds communicators that a job has left with operations in flight.
//
// Example: ncclCommRevoke ends the thread that reports to the plugin, so the operations that it
// aborts stay in flight until ncclCommDestroy (2.30.7 src/init.cc ncclCommRevoke).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exporter/findings/hangs/hang_sentences.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

const GraphCommunicator* LongestStill(const GraphJob& job, const HangMemory& memory,
                                      int64_t taken_realtime_ns, int64_t threshold_ns) {
  const GraphCommunicator* longest = nullptr;
  for (const GraphCommunicator& communicator : job.communicators) {
    if (!communicator.is_abandoned || communicator.youngest_ns < threshold_ns) continue;
    const SeenCommunicator& seen = memory.Of(communicator.key);
    const int64_t since_ns = seen.abandoned_since_realtime_ns;
    if (!seen.ranks.empty() && (since_ns == 0 || taken_realtime_ns - since_ns < threshold_ns / 4))
      continue;
    if (longest == nullptr || communicator.youngest_ns > longest->youngest_ns)
      longest = &communicator;
  }
  return longest;
}

}  // namespace

std::optional<Finding> AbandonedFinding(const GraphJob& job, const HangMemory& memory,
                                        int64_t taken_realtime_ns, const Thresholds& times) {
  const GraphCommunicator* const found =
      LongestStill(job, memory, taken_realtime_ns, times.hang_threshold.count());
  if (found == nullptr) return std::nullopt;
  size_t ranks = 0;
  const collector::InFlightOperation* oldest = nullptr;
  for (const GraphRank& rank : found->ranks) {
    const collector::CommunicatorSnapshot& snapshot = *rank.rank.communicator;
    if (!rank.Lives() || !snapshot.completion_is_known || snapshot.in_flight.empty()) continue;
    ++ranks;
    const collector::InFlightOperation& first = snapshot.in_flight.front();
    if (oldest == nullptr || first.start_realtime_ns < oldest->start_realtime_ns) oldest = &first;
  }
  if (oldest == nullptr) return std::nullopt;
  Finding finding =
      FindingAbout(FindingKind::kAbandoned, Severity::kInfo, found->key, found->ranks.front().rank);
  finding.since_realtime_ns = oldest->start_realtime_ns;
  finding.headline = fmt::format(
      "{}: {} of {} has been in flight since {}, and {} that {} in it {} in other communicators.",
      Capital(finding.job), OperationText(*oldest), NameOf(*found),
      ClockText(oldest->start_realtime_ns), CountText(ranks, "rank"), ranks == 1 ? "is" : "are",
      ranks == 1 ? "goes on" : "go on");
  finding.evidence = {{"in flight for", AgeText(oldest->start_realtime_ns, taken_realtime_ns)},
                      {"operation", fmt::format("{} of {}, {}", OperationText(*oldest),
                                                NameOf(*found), BytesText(oldest->bytes))}};
  const auto others = std::ranges::count(job.communicators, true, &GraphCommunicator::is_abandoned);
  if (others > 1)
    finding.evidence.emplace_back("abandoned in all",
                                  CountText(static_cast<uint64_t>(others), "communicator"));
  finding.next =
      "Nothing, if the job has revoked, aborted or shrunk this communicator: the finding ends when "
      "it is destroyed.";
  return finding;
}

}  // namespace nccl_exporter::exporter
