// SPDX-License-Identifier: Apache-2.0
// Cost of a node's book.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "exporter/ledger/ledger.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

// 8 ranks that use so many communicators each, with four collectives of all sizes.
collector::NodeSnapshot NodeOfRanks(int64_t communicators) {
  return *NodeOfShape(
      {.ranks = 8, .communicators = static_cast<int>(communicators / 8), .point_to_point = 0});
}

class Advancing : public benchmark::Fixture {
 public:
  void SetUp(const benchmark::State& state) override {
    node_ = NodeOfRanks(state.range(0));
    ledger_ = Ledger();
    for (int i = 0; i < 20; ++i) Pass();
  }
  // Five seconds, in which every communicator did something, and some of it was timed.
  void Pass() {
    now_.monotonic_ns += 5 * LedgerTimes::kSecondNs;
    now_.realtime_ns += 5 * LedgerTimes::kSecondNs;
    for (collector::ProcessSnapshot& process : node_.processes) {
      for (collector::CommunicatorSnapshot& communicator : process.communicators) {
        AddOperation(communicator, Function::kAllReduce, 1 << 20, 1000000);
        AddOperation(communicator, Function::kAllReduce, 1 << 20, 0);
      }
    }
    ledger_.Enter(std::make_shared<const collector::NodeSnapshot>(node_), now_);
  }

 protected:
  collector::NodeSnapshot node_;
  Moment now_{.monotonic_ns = 0, .realtime_ns = 1'700'010'000 * LedgerTimes::kSecondNs};
  Ledger ledger_;
};

BENCHMARK_DEFINE_F(Advancing, Advance)(benchmark::State& state) {
  for (auto _ : state) {
    now_.monotonic_ns += LedgerTimes::kSecondNs;
    ledger_.Enter(std::make_shared<const collector::NodeSnapshot>(node_), now_);
  }
}
BENCHMARK_REGISTER_F(Advancing, Advance)->Arg(96)->Arg(2048)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nccl_exporter::exporter

BENCHMARK_MAIN();
