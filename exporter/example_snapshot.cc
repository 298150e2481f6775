// SPDX-License-Identifier: Apache-2.0
// The snapshots that tests and benchmarks are made of.
#include "exporter/example_snapshot.h"

#include <utility>

namespace nccl_exporter {
namespace {

constexpr int64_t kStartNs = 1700000000000000000;
constexpr int64_t kSecondNs = 1000000000;

// A rank of a training job under Slurm: collectives, point-to-point and an operation in flight.
ProcessSnapshot TrainingProcess() {
  ProcessSnapshot process = EmptyProcess(4711);
  process.identity = {{"SLURM_JOB_ID", "42"},    {"SLURM_STEP_ID", "0"},           {"SLURM_PROCID", "3"},
                      {"SLURM_LOCALID", "1"},    {"SLURM_JOB_NAME", "llm \"7b\""}, {"POD_NAMESPACE", "research"},
                      {"POD_NAME", "trainer-0"}, {"CONTAINER_NAME", "main"},       {"NODE_NAME", "gpu-node-7"}};
  process.losses[static_cast<size_t>(Loss::kInFlightFull)] = 2;
  process.losses[static_cast<size_t>(Loss::kForeignProcess)] = 7;
  process.losses[static_cast<size_t>(Loss::kZeroTimestamp)] = 1;

  CommunicatorSnapshot world = EmptyCommunicator(0x0123456789abcdef, 3);
  world.name = "world";
  world.nodes = 1;
  AddOperation(world, Function::kAllReduce, 512, 20000);
  AddOperation(world, Function::kAllReduce, 1 << 20, 100000);
  AddOperation(world, Function::kAllReduce, 1 << 28, 2500000);
  AddOperation(world, Function::kAllReduce, 1 << 28, 0);
  AddOperation(world, Function::kSend, 4096, 30000);
  AddOperation(world, Function::kRecv, 8192, 0);
  AddOperation(world, Function::kOther, 64, 15259);
  world.functions[static_cast<size_t>(Function::kBroadcast)].calls = 5;
  world.started_sequence = 5;
  world.completed_sequence = 4;
  world.completion_is_known = true;
  world.in_flight = {{.function = Function::kAllReduce,
                      .sequence = 3,
                      .start_realtime_ns = kStartNs + 90 * kSecondNs,
                      .bytes = 1 << 28,
                      .peer = -1,
                      .parts_announced = 16,
                      .parts_done = 4},
                     {.function = Function::kRecv,
                      .sequence = 0,
                      .start_realtime_ns = kStartNs + 91 * kSecondNs,
                      .bytes = 8192,
                      .peer = 2,
                      .parts_announced = 1,
                      .parts_done = 0}};
  world.last_progress_realtime_ns = kStartNs + 90 * kSecondNs + 500000000;
  world.arrivals = {{.compared = 3, .last = 2, .lateness_ns = 12500000}};
  process.communicators.push_back(std::move(world));

  CommunicatorSnapshot idle = EmptyCommunicator(0xfeed, 0);
  idle.name = "back\\slash \"quoted\"\nline \xFF";
  idle.completion_is_known = true;
  process.communicators.push_back(std::move(idle));

  CommunicatorSnapshot unknown = EmptyCommunicator(0, 0);
  unknown.has_identity = false;
  AddOperation(unknown, Function::kReduce, 1, 0);
  process.communicators.push_back(std::move(unknown));
  return process;
}

// A process outside any job, under an old NCCL: no number of ranks, no timing, no end of operations; and it has gone.
ProcessSnapshot OldProcess() {
  ProcessSnapshot process = EmptyProcess(12);
  process.is_alive = false;
  process.is_stopped.reset();
  CommunicatorSnapshot communicator = EmptyCommunicator(0xabc, 1);
  communicator.ranks = 0;
  communicator.api_version = 2;
  communicator.nccl_version = 0;
  communicator.timing_source = TimingSource::kNone;
  communicator.timing_reason = TimingReason::kApiTooOld;
  communicator.gpu_index = -1;
  communicator.gpu_uuid.clear();
  communicator.pci_bus_id.clear();
  AddOperation(communicator, Function::kAllGather, 70000, 0);
  process.communicators.push_back(std::move(communicator));

  CommunicatorSnapshot overflow = EmptyCommunicator(0, 0);
  overflow.is_overflow = true;
  overflow.has_identity = false;
  overflow.ranks = 0;
  AddOperation(overflow, Function::kBroadcast, 100, 0);
  process.communicators.push_back(std::move(overflow));
  return process;
}

}  // namespace

CommunicatorSnapshot EmptyCommunicator(uint64_t id, uint64_t rank) {
  CommunicatorSnapshot communicator;
  communicator.generation = 1;
  communicator.has_identity = true;
  communicator.id = id;
  communicator.ranks = 8;
  communicator.rank = rank;
  communicator.api_version = 6;
  communicator.nccl_version = 22907;
  communicator.event_mask = 0x6;
  communicator.timing_source = TimingSource::kKernel;
  communicator.gpu_index = static_cast<int>(rank % 8);
  communicator.gpu_uuid = "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(rank % 8);
  communicator.pci_bus_id = "0000:3b:00.0";
  communicator.created_realtime_ns = kStartNs + kSecondNs;
  communicator.functions.resize(kFunctionCount);
  return communicator;
}

void AddOperation(CommunicatorSnapshot& communicator, Function function, uint64_t bytes, uint64_t duration_ns) {
  FunctionSnapshot& counts = communicator.functions[static_cast<size_t>(function)];
  SizeClassSnapshot& size = counts.sizes[static_cast<size_t>(SizeClassOf(bytes))];
  ++counts.calls;
  ++size.operations;
  size.bytes += bytes;
  if (duration_ns == 0) return;
  ++counts.completed;
  ++size.timed_operations;
  size.timed_bytes += bytes;
  size.busy_ns += duration_ns;
  ++counts.duration[static_cast<size_t>(DurationBuckets::IndexOf(duration_ns))];
  const uint64_t bandwidth = BusBandwidth(function, bytes, static_cast<uint32_t>(communicator.ranks), duration_ns);
  if (bytes < kBandwidthMinimumBytes || bandwidth == 0) return;
  ++counts.bandwidth[static_cast<size_t>(BandwidthBuckets::IndexOf(bandwidth))];
  counts.bandwidth_sum_kib += (bandwidth + 512) / 1024;
}

ProcessSnapshot EmptyProcess(uint64_t pid) {
  ProcessSnapshot process;
  process.segment = std::to_string(pid) + ".seg";
  process.is_alive = true;
  process.is_stopped = false;
  process.pid = pid;
  process.uid = 1000;
  process.host_name = "gpu-node-7";
  process.executable = "python3";
  process.plugin_version = "0.1.0";
  process.start_realtime_ns = kStartNs;
  return process;
}

std::shared_ptr<const NodeSnapshot> ExampleSnapshot() {
  auto snapshot = std::make_shared<NodeSnapshot>();
  snapshot->taken_realtime_ns = kStartNs + 100 * kSecondNs;
  snapshot->processes = {TrainingProcess(), OldProcess()};
  snapshot->segments = {.live = 1, .starting = 0, .exited = 1, .unusable = 1};
  snapshot->segment_errors[static_cast<size_t>(SegmentError::kBadMagic)] = 3;
  snapshot->uncompared_operations[static_cast<size_t>(Uncompared::kUncertainClocks)] = 8;
  snapshot->arrival_matching_ns = 1500000;
  return snapshot;
}

std::shared_ptr<const NodeSnapshot> LoadedSnapshot(int communicators, int functions) {
  constexpr int kRanks = 8;
  constexpr int kOperations = 200;  // of each function: enough to fill several buckets and all size classes
  auto snapshot = std::make_shared<NodeSnapshot>();
  for (int rank = 0; rank < kRanks; ++rank) {
    ProcessSnapshot process = EmptyProcess(static_cast<uint64_t>(1000 + rank));
    process.identity = {{"SLURM_JOB_ID", "1234567"}, {"SLURM_PROCID", std::to_string(rank)}};
    for (int i = 0; i < communicators; ++i) {
      CommunicatorSnapshot communicator =
          EmptyCommunicator(0x9e3779b97f4a7c15 * static_cast<uint64_t>(i + 1), static_cast<uint64_t>(rank));
      communicator.name = "tensor_parallel_" + std::to_string(i);
      communicator.completion_is_known = true;
      communicator.last_progress_realtime_ns = kStartNs + 123456789;
      for (int function = 0; function < functions; ++function) {
        for (int k = 0; k < kOperations; ++k) {
          const uint64_t bytes = uint64_t{64} << (k % 24);
          AddOperation(communicator, static_cast<Function>(function), bytes,
                       9871 + static_cast<uint64_t>(k) * 1237 + bytes / 181);
        }
      }
      process.communicators.push_back(std::move(communicator));
    }
    snapshot->processes.push_back(std::move(process));
  }
  snapshot->segments.live = kRanks;
  return snapshot;
}

}  // namespace nccl_exporter
