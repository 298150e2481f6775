// SPDX-License-Identifier: Apache-2.0
// Cost of one judgement on the largest node that a snapshot holds, with a history that is full, and
// every communicator forged so that it is in trouble: one user can make such a node.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_judge.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecondNs = 1000000000;
constexpr size_t kProcesses = 64;
// Sends in flight of each rank, to many peers.
constexpr int kInFlight = 32;

void AddInFlight(size_t rank, size_t ranks, int64_t now_ns,
                 collector::CommunicatorSnapshot& communicator) {
  communicator.completion_is_known = true;
  communicator.started_sequence = 1000;
  communicator.completed_sequence = 1000;
  communicator.last_progress_realtime_ns = now_ns - 300 * kSecondNs;
  // One rank in four has nothing in flight: a culprit, if any.
  for (int i = 0; i < kInFlight && rank % 4 != 0; ++i) {
    communicator.in_flight.push_back(
        {.function = Function::kSend,
         .start_realtime_ns = communicator.last_progress_realtime_ns,
         .bytes = 1 << 20,
         .peer = static_cast<int>((rank * 31 + static_cast<size_t>(i) * 7 + 1) % ranks)});
  }
}

// collector::kMaxCommunicators ranks, so many of each communicator, in so many jobs.
collector::NodeSnapshot ForgedNode(size_t ranks, size_t jobs) {
  collector::NodeSnapshot node;
  node.taken_realtime_ns = 1700000000 * kSecondNs;
  for (size_t i = 0; i < kProcesses; ++i) {
    node.processes.push_back(EmptyProcess(5000 + i));
    node.processes.back().start_realtime_ns = node.taken_realtime_ns - 3600 * kSecondNs;
    node.processes.back().identity = {{"SLURM_JOB_ID", std::to_string(4720 + i % jobs)}};
    node.processes.back().numbers.global_rank = static_cast<uint32_t>(i);
    node.processes.back().is_alive = i % 8 != 7;
  }
  for (size_t i = 0; i < collector::kMaxCommunicators; ++i) {
    collector::ProcessSnapshot& process = node.processes[i % kProcesses];
    collector::CommunicatorSnapshot communicator =
        EmptyCommunicator((i / ranks + 1) << 32, i % ranks);
    communicator.slot = static_cast<uint32_t>(process.communicators.size());
    communicator.name = "a name that is as long as users give them";
    communicator.numbers = process.numbers;
    communicator.ranks = ranks;
    communicator.nodes = 1;
    communicator.gpu_index = static_cast<int>(i % 8);
    AddInFlight(i % ranks, ranks, node.taken_realtime_ns, communicator);
    process.communicators.push_back(std::move(communicator));
  }
  return node;
}

// One step, in which every rank did something, was the last to enter, and lost operations.
void Pass(collector::NodeSnapshot& node) {
  node.taken_realtime_ns += 5 * kSecondNs;
  for (collector::ProcessSnapshot& process : node.processes) {
    process.losses[static_cast<size_t>(Loss::kInFlightFull)] += 1000;
    for (collector::CommunicatorSnapshot& communicator : process.communicators) {
      AddOperation(communicator, Function::kAllReduce, 1 << 20, 1000000);
      if (!communicator.arrivals) communicator.arrivals.emplace();
      *communicator.arrivals += {.compared = 100,
                                 .last = communicator.rank % 16 == 1 ? 100u : 0u,
                                 .lateness_ns = static_cast<uint64_t>(kSecondNs)};
    }
  }
}

// The node, and a judge that has followed it for longer than its history.
struct Followed {
  explicit Followed(size_t ranks, size_t jobs = 1) : node(ForgedNode(ranks, jobs)) {
    for (size_t step = 0; step < kHistorySteps + 5; ++step) Record();
  }
  void Record() {
    Pass(node);
    judge.Record(BookOf(node), node.taken_realtime_ns);
  }

  collector::NodeSnapshot node;
  NodeJudge judge;
};

void Judge(benchmark::State& state) {
  const Followed followed(static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)));
  size_t findings = 0;
  for (auto _ : state) findings = followed.judge.Judge(followed.node).findings.size();
  state.counters["findings"] = static_cast<double>(findings);
}

void WriteInFlight(benchmark::State& state) {
  const Followed followed(static_cast<size_t>(state.range(0)));
  const Judgement judgement = followed.judge.Judge(followed.node);
  size_t bytes = 0;
  for (auto _ : state) bytes = InFlightText(followed.node, judgement).size();
  state.counters["bytes"] = static_cast<double>(bytes);
}

void Record(benchmark::State& state) {
  Followed followed(static_cast<size_t>(state.range(0)));
  for (auto _ : state) followed.Record();
}

// Ranks of each communicator, and jobs.
BENCHMARK(Judge)
    ->Args({1, 1})
    ->Args({8, 1})
    ->Args({64, 1})
    ->Args({2048, 1})
    ->Args({1, 64})
    ->Args({8, 64})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(WriteInFlight)->Arg(8)->Unit(benchmark::kMillisecond);
BENCHMARK(Record)->Arg(8)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nccl_exporter::exporter

BENCHMARK_MAIN();
