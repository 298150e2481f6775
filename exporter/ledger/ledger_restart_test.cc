// SPDX-License-Identifier: Apache-2.0
// PromQL over the books of daemons that follow each other.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>

#include "exporter/testing/played_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kMib = 1 << 20;
constexpr int64_t kMillisecondNs = 1'000'000;

// increase() without extrapolation: a smaller value is a start at 0.
class Increase {
 public:
  void Add(uint64_t value) {
    if (last_) sum_ += value < *last_ ? value : value - *last_;
    last_ = value;
  }
  double sum() const { return static_cast<double>(sum_); }

 private:
  std::optional<uint64_t> last_;
  uint64_t sum_ = 0;
};

// A job of two nodes: ten operations of 1 ms and one of 3 ms per step of 200 ms, all timed
// or a fifth of the time.
class Job {
 public:
  Job(bool loses_times, uint64_t seed) : loses_times_(loses_times), random_(seed) { node.Add(0); }
  void Step() {
    const int64_t phase = node.now().monotonic_ns % (2 * kSecondNs);
    const bool is_timed = !loses_times_ || phase < 400 * kMillisecondNs;
    for (int i = 0; i < 11; ++i) {
      const uint64_t ns = (i == 0 ? 3'000'000u : 1'000'000u) + random_() % 200'000;
      if (is_timed) truth_ns += static_cast<double>(ns);
      AddOperation(node.comm(), i == 0 ? Function::kAllGather : Function::kAllReduce, kMib,
                   is_timed ? ns : 0);
    }
    ++steps;
    bus_bytes.all[0] += 11 * kMib;
    bus_bytes.timed[0] += is_timed ? 11 * kMib : 0;
    node.comm().network_bus_bytes = bus_bytes;
    node.Pass(200 * kMillisecondNs);
  }

  PlayedNode node;
  double truth_ns = 0;  // of the timed operations
  double steps = 0;
  collector::NetworkBusBytes bus_bytes;

 private:
  const bool loses_times_;
  std::mt19937_64 random_;
};

struct Seen {
  Increase kernel_ns, process_kernel_ns, steps, wait_ns, bus_bytes, timed_bus_bytes;
  void Add(PlayedNode& node, Ledger& ledger) {
    const RankCounts& counts = node.See(ledger);
    kernel_ns.Add(counts.kernel_ns.front());
    process_kernel_ns.Add(*node.ProcessSums().kernel_ns);
    bus_bytes.Add(counts.node->network->all[0]);
    timed_bus_bytes.Add(counts.node->network->timed[0]);
    if (!counts.steps) return;
    steps.Add(counts.steps->steps);
    for (const auto& [kind, kind_ns] : counts.steps->waits_ns) {
      if (kind.function == Function::kAllGather) wait_ns.Add(kind_ns);
    };
  }
};

// A daemon for the node, which another one follows now and then.
void Play(Job& job, uint64_t seed, Seen& seen) {
  std::mt19937_64 random(seed);
  Ledger ledger;
  job.node.Enter(ledger);
  for (int scrape = 0, restarts = 0; restarts < 20; ++scrape) {
    for (int i = 0; i < 75; ++i) job.Step();  // 15 s
    seen.Add(job.node, ledger);
    if (scrape < 8 || random() % 4 != 0) continue;
    ++restarts;
    for (uint64_t i = random() % 20; i > 0; --i) job.Step();  // nobody runs
    Ledger next;
    job.node.Enter(next);
    ledger = next;
  }
}

class Restarts : public testing::TestWithParam<uint64_t> {};

TEST_P(Restarts, NeverAddMoreThanWasDone) {
  Job job(true, GetParam());
  Seen seen;
  Play(job, GetParam(), seen);
  EXPECT_LE(seen.process_kernel_ns.sum(), 1.01 * job.truth_ns);
  EXPECT_LE(seen.steps.sum(), job.steps);
  // A restart takes of both what was done meanwhile, so the part that was timed stays.
  const auto part = [](double timed, double all) { return timed / all; };
  EXPECT_LE(seen.bus_bytes.sum(), static_cast<double>(job.bus_bytes.all[0]));
  EXPECT_NEAR(
      part(seen.timed_bus_bytes.sum(), seen.bus_bytes.sum()),
      part(static_cast<double>(job.bus_bytes.timed[0]), static_cast<double>(job.bus_bytes.all[0])),
      0.02);
}

TEST_P(Restarts, TakeNothingOfTheKernelTimeOfARank) {
  for (const bool loses_times : {false, true}) {
    Job job(loses_times, GetParam());
    Seen seen;
    seen.kernel_ns.Add(0);
    Play(job, GetParam(), seen);
    EXPECT_NEAR(seen.kernel_ns.sum(), job.truth_ns, 0.005 * job.truth_ns);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Restarts, testing::Range<uint64_t>(1, 21));

}  // namespace
}  // namespace nccl_exporter::exporter
