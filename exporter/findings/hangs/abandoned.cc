// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/hangs/abandoned.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "exporter/findings/hangs/hang_evidence.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

const GraphCommunicator* LongestStill(const GraphJob& job, const HangMemory& memory,
                                      int64_t taken_realtime_ns, int64_t threshold_ns) {
  const GraphCommunicator* longest = nullptr;
  for (const GraphCommunicator& communicator : job.communicators) {
    if (!communicator.is_abandoned || communicator.youngest_ns < threshold_ns) continue;
    const std::optional<int64_t> abandoned_for_ns =
        memory.AbandonedForNs(communicator.key, taken_realtime_ns);
    if (!memory.Of(communicator.key).empty() && abandoned_for_ns.value_or(0) < threshold_ns / 4)
      continue;
    if (longest == nullptr || communicator.youngest_ns > longest->youngest_ns)
      longest = &communicator;
  }
  return longest;
}

struct InFlight {
  size_t ranks = 0;
  const collector::InFlightOperation* oldest = nullptr;
};
InFlight InFlightIn(const GraphCommunicator& communicator) {
  InFlight in_flight;
  for (const GraphRank& rank : communicator.ranks) {
    const collector::CommunicatorSnapshot& snapshot = *rank.rank.communicator;
    if (!rank.Lives() || !snapshot.completion_is_known || snapshot.in_flight.empty()) continue;
    ++in_flight.ranks;
    const collector::InFlightOperation& first = snapshot.in_flight.front();
    if (in_flight.oldest == nullptr ||
        first.start_realtime_ns < in_flight.oldest->start_realtime_ns)
      in_flight.oldest = &first;
  }
  return in_flight;
}

}  // namespace

std::optional<Finding> AbandonedOf(const GraphJob& job, const HangMemory& memory,
                                   int64_t taken_realtime_ns, const Thresholds& times) {
  const GraphCommunicator* const found =
      LongestStill(job, memory, taken_realtime_ns, times.hang_threshold.count());
  if (found == nullptr) return std::nullopt;
  const auto [ranks, oldest] = InFlightIn(*found);
  if (oldest == nullptr) return std::nullopt;
  const RankOnNode& any = found->ranks.front().rank;
  Finding finding;
  finding.kind = FindingKind::kAbandoned;
  finding.severity = Severity::kInfo;
  finding.communicator = found->key;
  finding.communicator_name = Printable(any.communicator->name);
  finding.uid = found->key.uid;
  finding.job = JobText(*any.process);
  finding.since_realtime_ns = oldest->start_realtime_ns;
  finding.headline = fmt::format(
      "{}: {} of {} has been in flight since {}, and {} that {} in it {} in other communicators.",
      Capital(finding.job), OperationText(*oldest), NameOf(*found),
      ClockText(oldest->start_realtime_ns), CountText(ranks, "rank"), ranks == 1 ? "is" : "are",
      ranks == 1 ? "goes on" : "go on");
  const auto add = [&](std::string name, std::string value) {
    finding.evidence.emplace_back(std::move(name), std::move(value));
  };
  add("in flight for", AgeText(oldest->start_realtime_ns, taken_realtime_ns));
  add("operation", fmt::format("{} of {}, {}", OperationText(*oldest), NameOf(*found),
                               BytesText(oldest->bytes)));
  const auto others = std::ranges::count(job.communicators, true, &GraphCommunicator::is_abandoned);
  if (others > 1) add("abandoned in all", CountText(static_cast<uint64_t>(others), "communicator"));
  finding.next =
      "Nothing, if the job has revoked, aborted or shrunk this communicator: the finding ends when "
      "it is destroyed.";
  return finding;
}

}  // namespace nccl_exporter::exporter
