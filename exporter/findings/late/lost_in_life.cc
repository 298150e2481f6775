// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "exporter/findings/late/late_candidates.h"
#include "exporter/ledger/ledger.h"

namespace nccl_exporter::exporter {
namespace {

// An operation that occurs less often in a life is no step.
constexpr int64_t kLeastSteps = 20;

// The node as it was after so many halves of the life, if all of it was alike.
std::shared_ptr<const collector::NodeSnapshot> After(int halves, int64_t realtime_ns,
                                                     const collector::NodeSnapshot& node) {
  const auto then = std::make_shared<collector::NodeSnapshot>(node);
  then->taken_realtime_ns = realtime_ns;
  for (collector::ProcessSnapshot& process : then->processes) {
    process.is_alive = true;
    for (collector::CommunicatorSnapshot& communicator : process.communicators) {
      communicator.is_closed = false;
      for (size_t i = 0; i < kFunctionCount; ++i) {
        if (!communicator.functions.IsInUse(i)) continue;
        for (collector::SizeClassSnapshot& size : communicator.functions.Change(i).sizes) {
          for (uint64_t* const count : {&size.operations, &size.bytes, &size.timed_operations,
                                        &size.timed_bytes, &size.busy_ns})
            *count = *count / 2 * static_cast<uint64_t>(halves);
        }
      }
    }
  }
  return then;
}

}  // namespace

// The ledger learns the steps in two halves of the life, and counts them in a second one alike.
LostInLife LostInLifeOf(const collector::NodeSnapshot& node, int64_t from, int64_t to,
                        const Thresholds& thresholds) {
  const int64_t life = to - from;
  LedgerTimes times;
  times.longest_step_ns =
      std::max<int64_t>(1, std::min(thresholds.longest_step.count(), life / kLeastSteps));
  Ledger ledger(times);
  NodeHistory history;
  std::shared_ptr<const Book> book;
  for (const int halves : {0, 1, 2, 4}) {
    const int64_t at = from + life / 2 * halves;
    book = ledger.Enter(After(halves, at, node), {.monotonic_ns = at, .realtime_ns = at});
    if (halves >= 2) history.Record(*book, at);
  }
  Thresholds whole = thresholds;
  whole.window = Thresholds::Ns(life);
  const NodeRates rates = RatesOf(*book->node, history, whole);
  LostInLife lost;
  for (const PeerRates& peers : rates.peers) {
    const double steps = peers.steps.value_or(0) * Seconds(whole.window);
    if (steps > 0) lost.steps = lost.steps > 0 ? std::min(lost.steps, steps) : steps;
  }
  for (auto& [job, gpus] : LostGpusOf(rates, whole)) lost.gpus = std::move(gpus);
  return lost;
}

}  // namespace nccl_exporter::exporter
