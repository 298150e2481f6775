// SPDX-License-Identifier: Apache-2.0
// A training process and an old one.
#include "exporter/testing/example_snapshot.h"

#include <utility>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kStartNs = 1700000000000000000;
constexpr int64_t kSecondNs = 1000000000;

std::vector<collector::InFlightOperation> InFlight() {
  return {{.function = Function::kAllReduce,
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
}

// A rank of a training job under Slurm: collectives, point-to-point and an operation in flight.
collector::ProcessSnapshot TrainingProcess() {
  collector::ProcessSnapshot process = EmptyProcess(4711);
  process.identity = {{"SLURM_JOB_ID", "42"},           {"SLURM_STEP_ID", "0"},
                      {"SLURM_JOB_NAME", "llm \"7b\""}, {"POD_NAMESPACE", "research"},
                      {"POD_NAME", "trainer-0"},        {"CONTAINER_NAME", "main"},
                      {"NODE_NAME", "gpu-node-7"},      {"NCCL_*", "2~1a2b3c4d"},
                      {"NCCL_DEBUG", "WARN"},           {"NCCL_IB_HCA", "=mlx5_0,mlx5_1"}};
  process.unread_in_use = 3;
  process.host = {{.cpu_wait_ns = 1500000000,
                   .involuntary_switches = 420,
                   .progress_cpu_ns = 85000000000,
                   .major_faults = 12,
                   .throttled_ns = 2500000000,
                   .memory_stall_ns = 40000000,
                   .verbs_devices = 8}};
  process.chained = {.name = "Inspector", .lacks_kernel_events = true};
  process.chained_callbacks = 6400;
  process.chained_ns = 250'000'000;
  process.losses[static_cast<size_t>(Loss::kInFlightFull)] = 2;
  process.losses[static_cast<size_t>(Loss::kForeignProcess)] = 7;
  process.losses[static_cast<size_t>(Loss::kZeroTimestamp)] = 1;

  collector::CommunicatorSnapshot world = EmptyCommunicator(0x0123456789abcdef, 3);
  world.name = "world";
  world.nodes = 1;
  AddOperation(world, Function::kAllReduce, 512, 20000);
  AddOperation(world, Function::kAllReduce, 1 << 20, 100000);
  AddOperation(world, Function::kAllReduce, 1 << 28, 2500000);
  AddOperation(world, Function::kAllReduce, 1 << 28, 0);
  AddOperation(world, Function::kSend, 4096, 30000);
  AddOperation(world, Function::kRecv, 8192, 0);
  AddOperation(world, Function::kOther, 64, 15259);
  world.functions.Change(static_cast<size_t>(Function::kBroadcast)).calls = 5;
  world.started_sequence = 5;
  world.completed_sequence = 4;
  world.completion_is_known = true;
  world.in_flight = InFlight();
  world.last_progress_realtime_ns = kStartNs + 90 * kSecondNs + 500000000;
  world.arrivals = {{.compared = 3, .last = 2, .lateness_ns = 12500000}};
  process.communicators.push_back(std::move(world));

  collector::CommunicatorSnapshot idle = EmptyCommunicator(0xfeed, 0);
  idle.name = "back\\slash \"quoted\"\nline \xFF";
  idle.completion_is_known = true;
  process.communicators.push_back(std::move(idle));

  collector::CommunicatorSnapshot windowed = EmptyCommunicator(0xbeef, 2);
  windowed.started_sequence = 1;
  windowed.unseen_operations = 1;
  windowed.probation_launches = 12;
  windowed.network = {{
      .directions =
          {{{.wait_ns = {100000000, 20000000, 3000000000, 0}, .bytes = 1 << 30, .operations = 96},
            {.wait_ns = {50000000, 25000000, 4000000000, 600000000},
             .bytes = 1 << 29,
             .operations = 48}}},
  }};
  windowed.network_share_ppm = 100000;
  windowed.network_bus_bytes = {{.all = {10ull << 30, 10ull << 30}, .timed = {1 << 30, 1 << 30}}};
  process.communicators.push_back(std::move(windowed));

  collector::CommunicatorSnapshot unknown = EmptyCommunicator(0, 0);
  unknown.has_identity = false;
  unknown.timing_source = TimingSource::kNone;
  unknown.timing_reason = TimingReason::kDrift;
  unknown.drift_cause = DriftCause::kMessageToSelf;
  AddOperation(unknown, Function::kReduce, 1, 0);
  process.communicators.push_back(std::move(unknown));
  return process;
}

// A process outside any job, under an old NCCL: no number of ranks, no timing, no end of
// operations; and it has gone.
collector::ProcessSnapshot OldProcess() {
  collector::ProcessSnapshot process = EmptyProcess(12);
  process.is_alive = false;
  process.is_stopped.reset();
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(0xabc, 1);
  communicator.ranks = 0;
  communicator.api_version = 2;
  communicator.nccl_version = 0;
  communicator.timing_source = TimingSource::kNone;
  communicator.timing_reason = TimingReason::kApiTooOld;
  communicator.gpu_index = -1;
  communicator.gpu_uuid.clear();
  communicator.pci_bus_id.clear();
  communicator.adapter.clear();
  AddOperation(communicator, Function::kAllGather, 70000, 0);
  process.communicators.push_back(std::move(communicator));

  collector::CommunicatorSnapshot overflow = EmptyCommunicator(0, 0);
  overflow.is_overflow = true;
  overflow.has_identity = false;
  overflow.ranks = 0;
  AddOperation(overflow, Function::kBroadcast, 100, 0);
  process.communicators.push_back(std::move(overflow));
  return process;
}

}  // namespace

std::shared_ptr<const collector::NodeSnapshot> ExampleSnapshot() {
  auto snapshot = std::make_shared<collector::NodeSnapshot>();
  snapshot->taken_realtime_ns = kStartNs + 100 * kSecondNs;
  snapshot->processes = {TrainingProcess(), OldProcess()};
  snapshot->segments = {.live = 1, .starting = 0, .exited = 1, .unusable = 1};
  snapshot->segment_errors[static_cast<size_t>(collector::SegmentError::kBadMagic)] = 3;
  snapshot->segment_troubles = {{.error = collector::SegmentError::kBadMagic,
                                 .uid = 1001,
                                 .count = 3,
                                 .file = "/run/nccl-exporter/junk.seg",
                                 .file_uid = 1001,
                                 .detail = "",
                                 .realtime_ns = kStartNs,
                                 .present = 1}};
  snapshot->uncompared_communicators = {{.uid = 1001, .count = 3}};
  snapshot->uncompared_operations[static_cast<size_t>(collector::Uncompared::kTogether)] = 8;
  snapshot->arrival_matching_ns = 1500000;
  return snapshot;
}

std::shared_ptr<const Book> ExampleBook() {
  const auto book = std::make_shared<Book>(*AssumedBook(ExampleSnapshot()));
  RankCounts& world = *book->rows.front().ranks.front();
  world.steps = {.steps = 2,
                 .waits_ns = {{{.function = Function::kAllReduce, .size_class = 0}, 5000000}},
                 .since_realtime_ns = kStartNs + 50 * kSecondNs};
  world.is_quiet = true;  // for 9.5 s
  world.progress = 12;
  world.node->progress = 24;
  return book;
}

}  // namespace nccl_exporter::exporter
