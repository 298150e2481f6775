// SPDX-License-Identifier: Apache-2.0
// The cost of a snapshot of a node with 8 GPUs: 8 segments with 256 slots, 12 communicators in
// each.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "collector/collector.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/scratch_directory.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

constexpr int kSegments = 8;
constexpr size_t kSlots = 256;
constexpr size_t kCommunicators = 12;

void WriteSegment(const std::string& path) {
  SegmentWriterV1 writer(kSlots);
  writer.Put(ProcessV1{.uid = ::getuid(), .identity = {{"SLURM_JOB_ID", "1"}}});
  for (size_t slot = 0; slot < kCommunicators; ++slot) {
    writer.Put(slot, CommunicatorV1{.id = slot, .ranks = 8});
    for (size_t function = 0; function < SegmentWriterV1::kFunctions; ++function) {
      writer.Put(slot, function, FunctionV1{.operations = {1, 2, 3, 4, 5, 6}, .completed = 10});
    }
    for (uint64_t ticket = 1; ticket <= 16; ++ticket)
      writer.Put(slot, InFlightV1{.ticket = ticket, .function = 4});
  }
  writer.Publish();
  writer.WriteTo(path);
}

// Range: 1 while the writers live, 0 when they have gone and their last counts are served.
void BM_Snapshot(benchmark::State& state) {
  const ScratchDirectory directory;
  std::vector<std::unique_ptr<LockHolder>> writers;
  for (int i = 0; i < kSegments; ++i) {
    const std::string path = directory.File(std::to_string(i) + ".seg");
    WriteSegment(path);
    if (state.range(0) == 1) writers.push_back(std::make_unique<LockHolder>(path));
  }
  Collector collector({.directories = {directory.path()}});
  for (auto _ : state) benchmark::DoNotOptimize(collector.Snapshot());
  state.SetItemsProcessed(state.iterations() * kSegments * kCommunicators);
}
BENCHMARK(BM_Snapshot)->ArgName("alive")->Arg(1)->Arg(0)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nccl_exporter::collector
