// SPDX-License-Identifier: Apache-2.0
// Cost of advancing the derived counters of a node.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "exporter/ledger/derived_counters.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

// 8 ranks that use so many communicators each, with four collectives of all sizes. Some operations
// stay untimed.
collector::NodeSnapshot NodeOfRanks(int64_t communicators) {
  collector::NodeSnapshot node = *NodeOfShape(
      {.ranks = 8, .communicators = static_cast<int>(communicators / 8), .point_to_point = 0});
  for (collector::ProcessSnapshot& process : node.processes)
    process.losses[static_cast<size_t>(Loss::kClockMismatch)] = 1;
  return node;
}

class Advancing : public benchmark::Fixture {
 public:
  void SetUp(const benchmark::State& state) override {
    node_ = NodeOfRanks(state.range(0));
    counters_ = DerivedCounters();
    for (int i = 0; i < 20; ++i) Pass();
  }
  // Five seconds, in which every communicator did something, and some of it was timed.
  void Pass() {
    now_.monotonic_ns += 5 * DerivedTimes::kSecondNs;
    now_.realtime_ns += 5 * DerivedTimes::kSecondNs;
    for (collector::ProcessSnapshot& process : node_.processes) {
      for (collector::CommunicatorSnapshot& communicator : process.communicators) {
        AddOperation(communicator, Function::kAllReduce, 1 << 20, 1000000);
        AddOperation(communicator, Function::kAllReduce, 1 << 20, 0);
      }
    }
    counters_.Advance(node_, now_);
  }

 protected:
  collector::NodeSnapshot node_;
  DerivedMoment now_{.monotonic_ns = 0, .realtime_ns = 1'700'010'000 * DerivedTimes::kSecondNs};
  DerivedCounters counters_;
};

BENCHMARK_DEFINE_F(Advancing, Advance)(benchmark::State& state) {
  for (auto _ : state) {
    now_.monotonic_ns += DerivedTimes::kSecondNs;
    counters_.Advance(node_, now_);
  }
}
BENCHMARK_REGISTER_F(Advancing, Advance)->Arg(96)->Arg(2048)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nccl_exporter::exporter

BENCHMARK_MAIN();
