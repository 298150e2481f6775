// SPDX-License-Identifier: Apache-2.0
#include "simulator/network/path.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {
namespace {

// Parts of a step, as shares of the time that the wire of a healthy hop needs for it.
constexpr double kProduce = 0.2;
constexpr double kConsume = 0.2;
constexpr double kLatency = 0.4;
constexpr double kFlush = 0.05;

constexpr int64_t kLaunchToPostNs = 2000;  // from the launch to the first buffer that is posted
constexpr double kPaceOfTheDeadNs = 10000;

int64_t After(int64_t ns, double duration_ns) {
  return ns >= kNever ? kNever : ns + static_cast<int64_t>(duration_ns);
}

// Time of one step; nothing before the first.
int64_t At(const std::vector<StepTimes>& steps, int step, int64_t StepTimes::*time) {
  return step < 0 ? 0 : steps[static_cast<size_t>(step)].*time;
}

class Hops {
 public:
  Hops(const Path& path, double pace_ns, bool is_dead)
      : path_(path),
        pace_ns_(pace_ns),
        is_dead_(is_dead),
        hops_(path.hops.size(), std::vector<StepTimes>(static_cast<size_t>(path.steps))) {
    for (int step = 0; step < path.steps; ++step) {
      // In this order: a hop needs of the others what they did in earlier steps only.
      for (size_t hop = 0; hop < hops_.size(); ++hop) Fill(hop, step);
    }
  }

  std::vector<std::vector<StepTimes>>& steps() { return hops_; }
  int64_t EndNs() const {
    int64_t end_ns = 0;
    for (const auto& steps : hops_) end_ns = std::max(end_ns, steps.back().consumed_ns);
    return end_ns;
  }

 private:
  // Steps that each rank of a ring AllReduce sends before it needs anything of the others.
  int OwnSteps() const {
    const int rounds = 2 * (static_cast<int>(path_.ranks.size()) - 1);
    return std::max(1, (path_.steps + rounds - 1) / std::max(1, rounds));
  }

  // From the step whose serial part ended at `former_ns`: slow ones take their times of the pace,
  // one after the other.
  int64_t Serial(int64_t ns, int64_t former_ns, double times, double healthy) const {
    if (times <= 1) return After(ns, healthy * pace_ns_);
    return After(std::max(ns, former_ns), times * pace_ns_);
  }

  void Fill(size_t hop, int step) {
    std::vector<StepTimes>& mine = hops_[hop];
    StepTimes& now = mine[static_cast<size_t>(step)];
    const HopTimes& times = path_.hops[hop];
    const Path::Rank& sender = path_.ranks[hop];
    const Path::Rank& receiver = path_.ranks[(hop + 1) % path_.ranks.size()];
    const int former = step - path_.overlap;  // the step that had the same buffers

    now.ready_ns = std::max({sender.start_ns, At(mine, step - 1, &StepTimes::ready_ns),
                             At(mine, former, &StepTimes::sent_ns)});
    if (path_.is_ring()) {
      const auto& upstream = hops_[(hop + hops_.size() - 1) % hops_.size()];
      now.ready_ns =
          std::max(now.ready_ns, At(upstream, step - OwnSteps(), &StepTimes::consumed_ns));
    }
    now.ready_ns = After(now.ready_ns, kProduce * pace_ns_);

    const int64_t free_ns = std::max(After(receiver.launched_ns, kLaunchToPostNs),
                                     At(mine, former, &StepTimes::consumed_ns));
    now.taken_ns = Serial(free_ns, At(mine, step - 1, &StepTimes::taken_ns), times.receiver, 0);
    now.credit_ns = now.taken_ns;

    const int64_t wire_ns =
        std::max({now.ready_ns, now.credit_ns, At(mine, step - 1, &StepTimes::sent_ns)});
    now.sent_ns = is_dead_ ? kNever : After(wire_ns, times.wire * pace_ns_);
    now.received_ns = After(now.sent_ns, kLatency * pace_ns_);
    now.flushed_ns =
        Serial(now.received_ns, At(mine, step - 1, &StepTimes::flushed_ns), times.flush, kFlush);
    now.consumed_ns = After(
        std::max({now.flushed_ns, receiver.start_ns, At(mine, step - 1, &StepTimes::consumed_ns)}),
        kConsume * pace_ns_);
  }

  const Path& path_;
  const double pace_ns_;
  const bool is_dead_;
  std::vector<std::vector<StepTimes>> hops_;
};

}  // namespace

std::vector<std::vector<StepTimes>> StepsOf(const Path& path) {
  constexpr int kMostRounds = 6;  // each comes closer by about the share done before all began
  constexpr double kClose = 0.001;
  int64_t begin_ns = 0;
  for (const Path::Rank& rank : path.ranks) begin_ns = std::max(begin_ns, rank.start_ns);
  if (path.stop_ns >= kNever || begin_ns >= kNever)
    return std::move(Hops(path, kPaceOfTheDeadNs, begin_ns < kNever).steps());
  const auto asked_ns = static_cast<double>(std::max<int64_t>(path.stop_ns - begin_ns, 1));
  double pace_ns = asked_ns / path.steps;
  for (int round = 1;; ++round) {
    Hops hops(path, pace_ns, false);
    const auto took_ns = static_cast<double>(std::max<int64_t>(hops.EndNs() - begin_ns, 1));
    if (round == kMostRounds || std::abs(took_ns - asked_ns) <= kClose * asked_ns)
      return std::move(hops.steps());
    pace_ns *= asked_ns / took_ns;
  }
}

}  // namespace nccl_exporter::sim
