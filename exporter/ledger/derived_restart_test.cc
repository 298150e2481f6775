// SPDX-License-Identifier: Apache-2.0
// What PromQL makes of the derived counters when daemons follow each other.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "exporter/ledger/played_node.h"

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

// A job of two nodes: ten operations of 1 ms and one of 3 ms per step of 200 ms, timed in windows
// or always.
class Job {
 public:
  Job(bool is_sampled, uint64_t seed) : is_sampled_(is_sampled), random_(seed) {
    node.Add(0);
    if (is_sampled) node.comm().sampling_state = SamplingState::kWindows;
  }
  void Step() {
    const int64_t phase = node.now().monotonic_ns % (2 * kSecondNs);
    const bool is_timed = !is_sampled_ || phase < 400 * kMillisecondNs;
    for (int i = 0; i < 11; ++i) {
      const uint64_t ns = (i == 0 ? 3'000'000u : 1'000'000u) + random_() % 200'000;
      truth_ns += static_cast<double>(ns);
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
  double truth_ns = 0;
  double steps = 0;
  collector::NetworkBusBytes bus_bytes;

 private:
  const bool is_sampled_;
  std::mt19937_64 random_;
};

struct Seen {
  Increase kernel_ns, process_kernel_ns, steps, wait_ns, bus_bytes, timed_bus_bytes;
  void Add(PlayedNode& node, DerivedCounters& counters) {
    const collector::DerivedCounts& counts = node.See(counters);
    kernel_ns.Add(counts.kernel_ns.front());
    process_kernel_ns.Add(*node.process().derived->kernel_ns);
    bus_bytes.Add(counts.node->network->all[0]);
    timed_bus_bytes.Add(counts.node->network->timed[0]);
    if (!counts.steps) return;
    steps.Add(counts.steps->steps);
    for (const auto& [kind, kind_ns] : counts.steps->waits_ns) {
      if (kind.function == Function::kAllGather) wait_ns.Add(kind_ns);
    };
  }
};

// A daemon for the node, which another one follows now and then. `keeps`: with its state.
void Play(Job& job, bool keeps, uint64_t seed, Seen& seen) {
  std::mt19937_64 random(seed);
  DerivedCounters counters;
  counters.Advance(job.node.node(), job.node.now());
  for (int scrape = 0, restarts = 0; restarts < 20; ++scrape) {
    for (int i = 0; i < 75; ++i) job.Step();  // 15 s
    seen.Add(job.node, counters);
    if (scrape < 8 || random() % 4 != 0) continue;
    ++restarts;
    const std::vector<uint64_t> words = counters.Words();
    for (uint64_t i = random() % 20; i > 0; --i) job.Step();  // nobody runs
    DerivedCounters next;
    if (keeps) {
      ASSERT_TRUE(next.Restore(words));
    }
    next.Advance(job.node.node(), job.node.now());
    counters = next;
  }
}

class Restarts : public testing::TestWithParam<uint64_t> {};

TEST_P(Restarts, WithTheStateTakeNothingAndAddNothing) {
  for (const bool is_sampled : {false, true}) {
    Job job(is_sampled, GetParam());
    Seen seen;
    // From the first snapshot on: the increase counts from 0.
    for (Increase* const one : {&seen.kernel_ns, &seen.process_kernel_ns, &seen.steps,
                                &seen.bus_bytes, &seen.timed_bus_bytes})
      one->Add(0);
    Play(job, true, GetParam(), seen);
    // Up to 4 s came after the latest scrape.
    const double truth = job.truth_ns;
    EXPECT_NEAR(seen.kernel_ns.sum(), truth, is_sampled ? 0.01 * truth : 0.005 * truth);
    EXPECT_EQ(seen.process_kernel_ns.sum(), seen.kernel_ns.sum());
    EXPECT_NEAR(seen.steps.sum(), job.steps, 20);
    EXPECT_NEAR(seen.bus_bytes.sum(), static_cast<double>(job.bus_bytes.all[0]), 20 * 11 * kMib);
    EXPECT_NEAR(seen.timed_bus_bytes.sum(), static_cast<double>(job.bus_bytes.timed[0]),
                20 * 11 * kMib);
  }
}

TEST_P(Restarts, WithoutTheStateNeverAddMoreThanWasDone) {
  Job job(true, GetParam());
  Seen seen;
  Play(job, false, GetParam(), seen);
  EXPECT_LE(seen.kernel_ns.sum(), 1.01 * job.truth_ns);
  EXPECT_LE(seen.process_kernel_ns.sum(), 1.01 * job.truth_ns);
  EXPECT_LE(seen.steps.sum(), job.steps);
  // A restart takes of both what was done meanwhile, so the part that was timed stays.
  const auto part = [](double timed, double all) { return timed / all; };
  EXPECT_LE(seen.bus_bytes.sum(), static_cast<double>(job.bus_bytes.all[0]));
  EXPECT_NEAR(
      part(seen.timed_bus_bytes.sum(), seen.bus_bytes.sum()),
      part(static_cast<double>(job.bus_bytes.timed[0]), static_cast<double>(job.bus_bytes.all[0])),
      0.02);
  // Each restart takes what was done since the scrape before it.
  EXPECT_GE(seen.kernel_ns.sum(), 0.7 * job.truth_ns);
}

TEST_P(Restarts, WithoutTheStateTakeNothingWhereEverythingIsTimed) {
  Job job(false, GetParam());
  Seen seen;
  seen.kernel_ns.Add(0);
  Play(job, false, GetParam(), seen);
  EXPECT_NEAR(seen.kernel_ns.sum(), job.truth_ns, 0.005 * job.truth_ns);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Restarts, testing::Range<uint64_t>(1, 21));

TEST(DerivedState, IsTheSameAfterItWasRestored) {
  Job job(true, 1);
  DerivedCounters counters;
  counters.Advance(job.node.node(), job.node.now());
  for (int i = 0; i < 1000; ++i) {
    job.Step();
    if (i % 25 == 0) counters.Advance(job.node.node(), job.node.now());
  }
  const std::vector<uint64_t> words = counters.Words();
  DerivedCounters restored;
  ASSERT_TRUE(restored.Restore(words));
  EXPECT_EQ(restored.Words(), words);
  for (int i = 0; i < 100; ++i) job.Step();
  const collector::DerivedCounts by_restored = job.node.See(restored);
  EXPECT_EQ(by_restored, job.node.See(counters));
}

// Words that are no state are refused or give a state, and never more.
TEST(DerivedState, CutOrChangedWordsDoNoHarm) {
  Job job(true, 1);
  DerivedCounters counters;
  counters.Advance(job.node.node(), job.node.now());
  for (int i = 0; i < 400; ++i) job.Step();
  counters.Advance(job.node.node(), job.node.now());
  const std::vector<uint64_t> words = counters.Words();
  for (size_t i = 0; i < words.size(); ++i) {
    EXPECT_FALSE(DerivedCounters().Restore(std::span(words).first(i))) << i;
    for (const uint64_t changed : {~uint64_t{0}, uint64_t{0}, words[i] ^ uint64_t{1} << 63}) {
      std::vector<uint64_t> other = words;
      other[i] = changed;
      DerivedCounters restored;
      restored.Restore(other);
      job.node.See(restored);
    }
  }
  std::vector<uint64_t> longer = words;
  longer.push_back(0);
  EXPECT_FALSE(DerivedCounters().Restore(longer));
}

}  // namespace
}  // namespace nccl_exporter::exporter
