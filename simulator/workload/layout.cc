// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/layout.h"

#include <algorithm>
#include <array>

namespace nccl_exporter::sim {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr int kTensorRanks = 8;  // tensor and expert parallelism stay within NVLink's reach

Call AllReduceOf(uint64_t bytes) { return {.function = Function::kAllReduce, .count = bytes / 4}; }
Call HalfPrecision(Function function, uint64_t count) {
  return {.function = function, .count = count, .datatype = "ncclBfloat16"};
}
Call TransferOf(uint64_t count, int source, int destination) {
  return {.function = Function::kSend,
          .count = count,
          .datatype = "ncclBfloat16",
          .root = source,
          .destination = destination};
}

void WriteSingle(LayoutBuilder& builder) {
  builder.Exposed(builder.AddWorld("single"), AllReduceOf(kMiB));
}

void WriteDataParallel(LayoutBuilder& builder) {
  const std::vector<int> world = builder.AddWorld("dp");
  for (const uint64_t bytes :
       {64 * kKiB, kMiB, 4 * kMiB, 25 * kMiB, 25 * kMiB, 100 * kMiB, 320 * kMiB}) {
    builder.Overlapped(world, AllReduceOf(bytes));
  }
  builder.Exposed(world, AllReduceOf(4));  // the loss
}

void WriteFullySharded(LayoutBuilder& builder) {
  constexpr uint64_t kLayerElements = 32 * kMiB;
  constexpr int kLayers = 4;
  const std::vector<int> world = builder.AddWorld("fsdp");
  const uint64_t shard =
      std::max<uint64_t>(1, kLayerElements / static_cast<uint64_t>(builder.shape().ranks()));
  for (int layer = 0; layer < kLayers; ++layer)
    builder.Overlapped(world, HalfPrecision(Function::kAllGather, shard));
  for (int layer = 0; layer < kLayers; ++layer) {
    builder.Overlapped(world, HalfPrecision(Function::kAllGather, shard));
    builder.Overlapped(world, HalfPrecision(Function::kReduceScatter, shard));
  }
  builder.Exposed(world, AllReduceOf(8));  // the norm of the gradient
}

void WriteTensorParallel(LayoutBuilder& builder) {
  const std::vector<int> tensor =
      builder.AddNeighbours("tp", std::min(builder.shape().ranks_per_node, kTensorRanks));
  for (int layer = 0; layer < 6; ++layer) {
    builder.Exposed(tensor, HalfPrecision(Function::kAllReduce, 128 * kKiB));
    builder.Exposed(tensor, HalfPrecision(Function::kAllReduce, kMiB));
  }
}

// Pipelines whose stages are `distance` ranks apart: activations forward, an exchange of all stages
// at once, gradients back.
void WritePipelines(LayoutBuilder& builder, int distance) {
  constexpr uint64_t kActivations = 2 * kMiB;
  const std::vector<int> pipelines = builder.AddStrided("pp", distance);
  const int stages = builder.shape().ranks() / distance;
  if (stages < 2) return;
  for (int stage = 0; stage + 1 < stages; ++stage)
    builder.Exposed(pipelines, TransferOf(kActivations, stage, stage + 1));
  std::vector<Call> exchange;
  for (int stage = 0; stage < stages; ++stage) {
    exchange.push_back(TransferOf(kActivations, stage, (stage + 1) % stages));
  }
  builder.Grouped(pipelines, exchange);
  for (int stage = stages - 1; stage > 0; --stage)
    builder.Exposed(pipelines, TransferOf(kActivations, stage, stage - 1));
}

void WritePipelineParallel(LayoutBuilder& builder) {
  const int ranks = builder.shape().ranks();
  WritePipelines(builder, ranks % 4 == 0 ? ranks / 4 : 1);
}

void WriteMixtureOfExperts(LayoutBuilder& builder) {
  const std::vector<int> experts =
      builder.AddNeighbours("ep", std::min(builder.shape().ranks_per_node, kTensorRanks));
  const std::vector<int> world = builder.AddWorld("dp");
  for (uint64_t layer = 1; layer <= 3; ++layer) {
    builder.Exposed(experts, HalfPrecision(Function::kAlltoAll, layer * 300 * kKiB + 1));
    builder.Exposed(experts, HalfPrecision(Function::kAlltoAll, layer * 300 * kKiB + 1));
  }
  builder.Overlapped(world, AllReduceOf(50 * kMiB));
}

// Tensor, pipeline (two stages) and data parallelism at once, in four micro-batches, with the
// embedding's gradient that the first stage shares with the last.
void WriteThreeDimensional(LayoutBuilder& builder) {
  constexpr int kMicroBatches = 4;
  constexpr uint64_t kActivations = 2 * kMiB;
  const int half = builder.shape().ranks() / 2;
  if (half == 0) return;
  const int tensor_ranks = half % 4 == 0 ? 4 : 1;
  std::vector<int> data;
  std::array<std::vector<int>, 2> tensor;
  for (int stage = 0; stage < 2; ++stage) {
    std::vector<std::vector<int>> across(static_cast<size_t>(tensor_ranks));
    for (int first = stage * half; first < (stage + 1) * half; first += tensor_ranks) {
      std::vector<int> members;
      for (int i = 0; i < tensor_ranks; ++i) {
        members.push_back(first + i);
        across[static_cast<size_t>(i)].push_back(first + i);
      }
      tensor[static_cast<size_t>(stage)].push_back(builder.Add("tp", std::move(members)));
    }
    for (std::vector<int>& members : across) data.push_back(builder.Add("dp", std::move(members)));
  }
  const std::vector<int> pipelines = builder.AddStrided("pp", half);
  const std::vector<int> embeddings = builder.AddStrided("embedding", half);
  for (const int from : {0, 1}) {
    for (int batch = 0; batch < kMicroBatches; ++batch) {
      builder.Exposed(tensor[static_cast<size_t>(from)], HalfPrecision(Function::kAllReduce, kMiB));
      builder.Exposed(pipelines, TransferOf(kActivations, from, 1 - from));
      builder.Exposed(tensor[static_cast<size_t>(1 - from)],
                      HalfPrecision(Function::kAllReduce, kMiB));
    }
  }
  builder.Overlapped(data, AllReduceOf(50 * kMiB));
  builder.Exposed(embeddings, AllReduceOf(8 * kMiB));
  builder.Exposed(data, AllReduceOf(4));  // the norm of the gradient
}

// Every kind of call on the same channels, each with a time of its own kind: what is taken for
// something else shows. Ranks exchange messages with their neighbours, or each with all, itself
// included.
void WriteLadder(LayoutBuilder& builder, bool exchanges_with_all) {
  const std::vector<int> world = builder.AddWorld("ladder");
  std::vector<Call> exchange;
  for (int rank = 0; rank < builder.shape().ranks() && builder.shape().ranks() > 1; ++rank) {
    exchange.push_back(TransferOf(1536 * kKiB, rank, (rank + 1) % builder.shape().ranks()));
  }
  if (exchanges_with_all) exchange = {HalfPrecision(Function::kAlltoAll, 600 * kKiB)};
  builder.Grouped(world, exchange);
  builder.Exposed(world, AllReduceOf(192 * kMiB));
  builder.Exposed(world, HalfPrecision(Function::kAllGather, 512 * kKiB));
  builder.Exposed(world,
                  {.function = Function::kBroadcast, .count = 64 * kMiB, .datatype = "ncclInt8"});
  builder.Exposed(world, HalfPrecision(Function::kReduceScatter, 4 * kMiB));
  builder.Eager(world, {.function = Function::kReduce, .count = 512, .datatype = "ncclFloat64"});
}

void WriteLadder(LayoutBuilder& builder) { WriteLadder(builder, false); }
void WriteLadderToSelf(LayoutBuilder& builder) { WriteLadder(builder, true); }

void WriteMixed(LayoutBuilder& builder) {
  const ClusterShape shape = builder.shape();
  const std::vector<int> world = builder.AddWorld("world");
  const std::vector<int> tensor =
      builder.AddNeighbours("tp", std::min(shape.ranks_per_node, kTensorRanks));
  const std::vector<int> data =
      shape.nodes > 1 ? builder.AddStrided("dp", shape.ranks_per_node) : world;
  builder.Exposed(world,
                  {.function = Function::kBroadcast, .count = 3 * kMiB, .datatype = "ncclUint8"});
  builder.Exposed(tensor, HalfPrecision(Function::kAllReduce, 2 * kMiB));
  if (shape.ranks() % 2 == 0) WritePipelines(builder, shape.ranks() / 2);
  builder.Exposed(tensor, HalfPrecision(Function::kAllGather, 512 * kKiB));
  builder.Exposed(tensor, HalfPrecision(Function::kReduceScatter, 512 * kKiB));
  builder.Overlapped(data, AllReduceOf(25 * kMiB));
  builder.Exposed(world, {.function = Function::kReduce, .count = 5000, .datatype = "ncclFloat64"});
  builder.Exposed(
      world, {.function = Function::kAllReduce, .count = 1, .datatype = "ncclInt32"});  // a barrier
}

// As many communicators as a step of pipelines and experts may have, each called in a step of its
// own, twice: the first steps and those that follow.
template <int kCommunicators>
void WriteMany(LayoutBuilder& builder) {
  std::vector<std::vector<int>> all;
  for (int i = 0; i < kCommunicators; ++i) all.push_back(builder.AddWorld("many"));
  for (int step = 0; step < 2 * kCommunicators; ++step) {
    builder.Exposed(all[static_cast<size_t>(step % kCommunicators)], AllReduceOf(kMiB));
    builder.OnlyInStep(step);
  }
}

constexpr std::array<Layout, 14> kLayouts{{
    {"single", "one communicator, one AllReduce of 1 MiB in a step", WriteSingle, false},
    {"dp", "one communicator, AllReduce of buckets of 64 KiB to 320 MiB", WriteDataParallel, false},
    {"fsdp", "one communicator, AllGather and ReduceScatter of layers", WriteFullySharded, false},
    {"tp", "small AllReduces within groups of up to 8 ranks of a node", WriteTensorParallel, false},
    {"pp", "Send and Recv between the stages of pipelines", WritePipelineParallel, false},
    {"moe", "AlltoAll as grouped sends and receives, and an AllReduce", WriteMixtureOfExperts,
     false},
    {"3d", "tensor, pipeline and data parallelism, with an embedding that two stages share",
     WriteThreeDimensional, false},
    {"ladder", "one communicator, every kind of call, each with a different duration", WriteLadder,
     false},
    {"ladder-to-self", "the same, with an AlltoAll instead of sends to neighbours",
     WriteLadderToSelf, false},
    {"mixed",
     "several communicators, every kind of call, and in every step a group that the seed chooses",
     WriteMixed, true},
    {"many-200", "200 communicators, each called in one step and once more", WriteMany<200>, false},
    {"many-300", "300 of them", WriteMany<300>, false},
    {"many-2500", "2,500 of them", WriteMany<2500>, false},
    {kRandomLayout,
     "several communicators; groups of all kinds of calls, splits and shrinks, all chosen by the "
     "seed",
     [](LayoutBuilder&) {}, false},
}};

}  // namespace

std::span<const Layout> Layouts() { return kLayouts; }

const Layout* FindLayout(std::string_view name) {
  const auto layout = std::find_if(kLayouts.begin(), kLayouts.end(),
                                   [&](const Layout& l) { return l.name == name; });
  return layout == kLayouts.end() ? nullptr : &*layout;
}

}  // namespace nccl_exporter::sim
