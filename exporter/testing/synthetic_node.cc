// SPDX-License-Identifier: Apache-2.0
// Counts are as large as after some hours of a job, so that a scrape body is as long as a real one.
#include "exporter/testing/synthetic_node.h"

#include <array>
#include <set>
#include <string>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kStartNs = 1700000000000000000;
constexpr int64_t kSecondNs = 1000000000;

// The most common ones come first.
constexpr std::array<Function, kCollectivesOfShape> kCollectives{
    Function::kAllReduce, Function::kAllGather, Function::kReduceScatter, Function::kBroadcast,
    Function::kReduce,    Function::kAlltoAll,  Function::kGather,        Function::kScatter};

// Messages of 64 B to 512 MiB, and times that fill about as many buckets as a real histogram has.
void AddManyOperations(collector::CommunicatorSnapshot& communicator, Function function) {
  constexpr int kOperations = 200;
  constexpr int kSizes = 24;
  // Counts differ between ranks and communicators. Otherwise scrape bodies would compress better
  // than real ones.
  const uint64_t seed = communicator.id ^ communicator.rank << 8 ^ static_cast<uint64_t>(function);
  const uint64_t times = 1000 + seed * 0x9e3779b97f4a7c15 % 100003;
  for (int i = 0; i < kOperations; ++i) {
    const uint64_t bytes = uint64_t{64} << (i % kSizes);
    AddOperation(communicator, function, bytes,
                 9871 + static_cast<uint64_t>(i) * 1237 + bytes / 181, times);
  }
}

// Network counts of a communicator across nodes.
collector::NetworkCounts NetworkOf(const collector::CommunicatorSnapshot& communicator) {
  const uint64_t seed = (communicator.id ^ communicator.rank) * 0x9e3779b97f4a7c15 % 1000003;
  return {.directions = {{{.wait_ns = {seed * 1234567, seed * 234567, seed * 3456789, 0},
                           .bytes = seed << 26,
                           .operations = seed * 97},
                          {.wait_ns = {seed * 2345671, 0, seed * 3214567, seed * 34567},
                           .bytes = seed << 26,
                           .operations = seed * 97}}}};
}

collector::CommunicatorSnapshot BusyCommunicator(const NodeShape& shape, int number, int rank) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(
      0x9e3779b97f4a7c15 * static_cast<uint64_t>(number + 1), static_cast<uint64_t>(rank));
  communicator.slot = static_cast<uint32_t>(number);
  communicator.gpu_index = rank;
  communicator.ranks = static_cast<uint64_t>(shape.ranks);
  communicator.nodes = number % 2 == 0 ? 2 : 1;
  if (communicator.nodes > 1) {
    communicator.network = NetworkOf(communicator);
    communicator.network_share_ppm = 100000;
    communicator.network_bus_bytes = {{.all = {uint64_t{1} << 40, uint64_t{1} << 40},
                                       .timed = {uint64_t{1} << 37, uint64_t{1} << 37}}};
  }
  communicator.completion_is_known = true;
  communicator.last_progress_realtime_ns = kStartNs + 123456789;
  if (number >= shape.communicators - shape.point_to_point) {
    communicator.name = "pipeline_parallel_" + std::to_string(number);
    AddManyOperations(communicator, Function::kSend);
    AddManyOperations(communicator, Function::kRecv);
    return communicator;
  }
  communicator.name = "tensor_parallel_" + std::to_string(number);
  for (int i = 0; i < shape.collectives; ++i)
    AddManyOperations(communicator, kCollectives[static_cast<size_t>(i)]);
  for (size_t i = 0; i < kFunctionCount; ++i)
    communicator.started_sequence += communicator.functions[i].calls;
  communicator.completed_sequence = communicator.started_sequence;
  communicator.arrivals = {
      .compared = communicator.started_sequence, .last = 4711, .lateness_ns = 1234567890123};
  return communicator;
}

// As if a step had one operation of each kind.
RankCounts AssumedCounts(const collector::CommunicatorSnapshot& communicator,
                         bool counts_for_node) {
  constexpr uint64_t kLargeBytes = 16 << 20;
  const auto ranks = static_cast<uint32_t>(communicator.ranks);
  RankCounts assumed;
  if (counts_for_node) {
    NodeCounts& node = assumed.node.emplace();
    node.is_lowest = true;
    node.progress = 0;
    node.since_realtime_ns = communicator.created_realtime_ns;
    if (communicator.arrivals) node.compared = communicator.arrivals->compared;
    node.network = communicator.network_bus_bytes;
  }
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const auto function = static_cast<Function>(i);
    const auto& sizes = communicator.functions[i].sizes;
    for (size_t size = 0; size < sizes.size(); ++size) {
      const collector::SizeClassSnapshot& counts = sizes[size];
      if (!counts.IsUsed()) continue;
      const OperationKind kind{.function = function, .size_class = static_cast<uint8_t>(size)};
      assumed.kernel_ns[static_cast<size_t>(collector::TrafficOf(function))] += counts.busy_ns;
      if (TraitsOf(function).is_point_to_point) continue;
      if (communicator.nodes > 1) {
        if (!assumed.steps)
          assumed.steps = {.steps = counts.operations,
                           .waits_ns = {},
                           .since_realtime_ns = communicator.created_realtime_ns};
        if (assumed.steps->waits_ns.size() < kMostStepWaits)
          assumed.steps->waits_ns[kind] = counts.busy_ns;
      }
      const double bus_bytes = BusBytes(function, counts.timed_bytes, ranks);
      if (assumed.node && assumed.node->large.empty() && bus_bytes > 0 &&
          kSizeClassBounds[size] >= kLargeBytes)
        assumed.node->large[kind] = {.timed_operations = counts.timed_operations,
                                     .bus_bytes = static_cast<uint64_t>(bus_bytes),
                                     .busy_ns = counts.busy_ns};
    }
  }
  return assumed;
}

}  // namespace

std::shared_ptr<const Book> AssumedBook(std::shared_ptr<const collector::NodeSnapshot> node) {
  const auto book = std::make_shared<Book>(std::move(node));
  std::set<collector::CommunicatorKey> counted;
  for (size_t i = 0; i < book->rows.size(); ++i) {
    const collector::ProcessSnapshot& process = book->node->processes[i];
    ProcessCounts& sum = book->rows[i].counts.emplace();
    sum.since_realtime_ns = process.start_realtime_ns;
    for (size_t j = 0; j < process.communicators.size(); ++j) {
      const collector::CommunicatorSnapshot& communicator = process.communicators[j];
      const bool is_first = counted.insert(CommunicatorKeyOf(process, communicator)).second;
      RankCounts& counts = book->rows[i].ranks[j].emplace(AssumedCounts(communicator, is_first));
      counts.is_quiet = process.IsHalted();
      for (const uint64_t kernel_ns : counts.kernel_ns) {
        if (kernel_ns != 0) sum.kernel_ns = sum.kernel_ns.value_or(0) + kernel_ns;
      }
      for (const Function function : {Function::kSend, Function::kRecv}) {
        for (const auto& size : communicator.functions[static_cast<size_t>(function)].sizes) {
          if (!size.IsUsed()) continue;
          sum.point_to_point_operations =
              sum.point_to_point_operations.value_or(0) + size.operations;
        }
      }
    }
  }
  return book;
}

collector::CommunicatorSnapshot EmptyCommunicator(uint64_t id, uint64_t rank) {
  collector::CommunicatorSnapshot communicator;
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
  communicator.adapter = "mlx5_0";
  communicator.created_realtime_ns = kStartNs + kSecondNs;
  return communicator;
}

void AddOperation(collector::CommunicatorSnapshot& communicator, Function function, uint64_t bytes,
                  uint64_t duration_ns, uint64_t times) {
  collector::FunctionSnapshot& counts =
      communicator.functions.Change(static_cast<size_t>(function));
  collector::SizeClassSnapshot& size = counts.sizes[static_cast<size_t>(SizeClassOf(bytes))];
  counts.calls += times;
  size.operations += times;
  size.bytes += times * bytes;
  if (duration_ns == 0) return;
  counts.completed += times;
  size.timed_operations += times;
  size.timed_bytes += times * bytes;
  size.busy_ns += times * duration_ns;
  const auto bucket = static_cast<size_t>(DurationBuckets::IndexOf(duration_ns));
  counts.duration[bucket] += times;
  collector::SizedDurations& sized =
      counts.duration_by_size[static_cast<size_t>(SizeClassOf(bytes))];
  sized.counts.resize(DurationBuckets::kCount);
  sized.counts[bucket] += times;
  sized.busy_ns += times * duration_ns;
  const uint64_t bandwidth =
      BusBandwidth(function, bytes, static_cast<uint32_t>(communicator.ranks), duration_ns);
  if (bytes < kBandwidthMinimumBytes || bandwidth == 0) return;
  counts.bandwidth[static_cast<size_t>(BandwidthBuckets::IndexOf(bandwidth))] += times;
  counts.bandwidth_sum_kib += times * ((bandwidth + 512) / 1024);
}

collector::ProcessSnapshot EmptyProcess(uint64_t pid) {
  collector::ProcessSnapshot process;
  process.file.inode = pid;
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

std::shared_ptr<const collector::NodeSnapshot> NodeOfShape(const NodeShape& shape) {
  auto snapshot = std::make_shared<collector::NodeSnapshot>();
  snapshot->taken_realtime_ns = kStartNs + 10000 * kSecondNs;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    collector::ProcessSnapshot process = EmptyProcess(static_cast<uint64_t>(1000 + rank));
    process.identity = {{"SLURM_JOB_ID", "1234567"},
                        {"NCCL_*", "3~1a2b3c4d"},
                        {"NCCL_DEBUG", "WARN"},
                        {"NCCL_IB_HCA", "mlx5"},
                        {"NCCL_SOCKET_IFNAME", "eth0"}};
    // Without a quota and without names of threads, as by default.
    process.host = {{.cpu_wait_ns = 4000000,
                     .involuntary_switches = 300,
                     .major_faults = 12,
                     .memory_stall_ns = 1000000,
                     .verbs_devices = 8}};
    process.numbers = {.global_rank = static_cast<uint32_t>(rank),
                       .local_rank = static_cast<uint32_t>(rank),
                       .world_size = static_cast<uint32_t>(shape.ranks)};
    for (int number = 0; number < shape.communicators; ++number) {
      process.communicators.push_back(BusyCommunicator(shape, number, rank));
      process.communicators.back().numbers = process.numbers;
    }
    if (!process.communicators.empty()) {
      process.communicators.front().in_flight = {{.function = Function::kAllReduce,
                                                  .sequence = 4711,
                                                  .start_realtime_ns = kStartNs + 123000000,
                                                  .bytes = 1 << 20,
                                                  .peer = -1,
                                                  .parts_announced = 16,
                                                  .parts_done = 4}};
    }
    snapshot->processes.push_back(std::move(process));
  }
  snapshot->segments.live = static_cast<uint64_t>(shape.ranks);
  return snapshot;
}

}  // namespace nccl_exporter::exporter
