// SPDX-License-Identifier: Apache-2.0
// Cost of the comparison of arrivals for the daemon: one interval of a node with 8 ranks and 10,000
// operations a second on each, spread over some communicators. `core` is the share of one core that
// this takes, `compared` the share of the operations that were compared.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <vector>

#include "collector/arrivals/arrival_observer.h"
#include "collector/testing/scratch_directory.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

constexpr int kRanks = 8;
constexpr uint64_t kOperationsPerSecond = 10000;
constexpr uint64_t kPeriodNs = 1'000'000'000 / kOperationsPerSecond;
constexpr uint64_t kOperationsPerInterval =
    kOperationsPerSecond * static_cast<uint64_t>(kRingReadInterval.count()) / 1000;

// The segment of one rank, mapped as the plugin maps it.
class RankSegment {
 public:
  RankSegment(const std::string& path, size_t communicators, uint64_t rank)
      : writer_(communicators + 2) {
    writer_.Put(ProcessV1{.uid = ::getuid()});
    for (size_t slot = 0; slot < communicators; ++slot) {
      writer_.Put(slot, CommunicatorV1{.id = slot,
                                       .ranks = kRanks,
                                       .rank = rank,
                                       .api_version = 6,
                                       .gpu_uuid = "GPU-" + std::to_string(rank)});
    }
    writer_.Publish();
    writer_.WriteTo(path);
    SegmentError error{};
    std::string detail;
    const std::filesystem::path place(path);
    const FileDescriptor folder(::open(place.parent_path().c_str(), O_PATH | O_DIRECTORY));
    file_ = std::make_shared<const SegmentFile>(
        SegmentFile::Open(folder.number(), place.filename(), &error, &detail).value());
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    bytes_ = static_cast<char*>(::mmap(nullptr, writer_.bytes().size(), PROT_READ | PROT_WRITE,
                                       MAP_SHARED, file.number(), 0));
  }
  ~RankSegment() { ::munmap(bytes_, writer_.bytes().size()); }
  RankSegment(const RankSegment&) = delete;
  RankSegment& operator=(const RankSegment&) = delete;

  void Complete(size_t slot, uint64_t ticket, uint64_t start_ns, uint64_t stop_ns) {
    const size_t at =
        writer_.CompletionAt(slot, (ticket - 1) % SegmentWriterV1::kCompletionEntries);
    const uint64_t words[8] = {ticket,          uint64_t{4} << 56 | ticket,
                               start_ns - 9000, start_ns,
                               stop_ns,         stop_ns + 5000,
                               1048576,         1};
    std::memcpy(bytes_ + at, words, sizeof(words));
  }
  const std::shared_ptr<const SegmentFile>& file() const { return file_; }

 private:
  SegmentWriterV1 writer_;
  std::shared_ptr<const SegmentFile> file_;
  char* bytes_;
};

// Range: communicators of each rank, and whether there are any operations.
void BM_ArrivalInterval(benchmark::State& state) {
  const auto communicators = static_cast<size_t>(state.range(0));
  const bool is_busy = state.range(1) == 1;
  const ScratchDirectory directory;
  std::vector<std::unique_ptr<RankSegment>> ranks;
  SegmentLooks looks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string path = directory.File(std::to_string(rank) + ".seg");
    ranks.push_back(
        std::make_unique<RankSegment>(path, communicators, static_cast<uint64_t>(rank)));
    const auto& file = ranks.back()->file();
    looks[KeyOf(file->Status())] = {
        .file = file, .is_alive = true, .slots = ReadSlotDirectory(*file, nullptr)};
  }
  ArrivalObserver observer;
  observer.Discover(looks, {}, 0);
  std::vector<uint64_t> tickets(communicators);
  uint64_t now_ns = 1'000'000'000'000;
  uint64_t operations = 0;
  double seconds = 0;
  const auto complete = [&](uint64_t number) {
    for (uint64_t i = 0; i < number; ++i) {
      const size_t slot = operations++ % communicators;
      const uint64_t ticket = ++tickets[slot];
      now_ns += kPeriodNs;
      // All ranks leave a collective together.
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        ranks[rank]->Complete(slot, ticket, now_ns + (rank + ticket) % kRanks * 5000,
                              now_ns + 90000);
      }
    }
  };
  const auto read = [&] {
    if (observer.AwaitsDiscovery({})) observer.Discover(looks, {}, 0);
    observer.Read({.realtime_ns = 0, .monotonic_ns = static_cast<int64_t>(now_ns)});
  };
  complete(communicators);
  read();
  for (auto _ : state) {
    if (is_busy) complete(kOperationsPerInterval);
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    read();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double spent = static_cast<double>(after.tv_sec - before.tv_sec) +
                         static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e9;
    state.SetIterationTime(spent);
    seconds += spent;
  }
  NodeSnapshot snapshot;
  ProcessSnapshot& process = snapshot.processes.emplace_back();
  process.file = KeyOf(ranks[0]->file()->Status());
  process.communicators.resize(1);
  process.communicators[0].generation = 1;
  observer.AddTo(snapshot);
  const double interval = static_cast<double>(kRingReadInterval.count()) / 1000;
  state.counters["core"] = seconds / static_cast<double>(state.iterations()) / interval;
  state.counters["compared"] =
      static_cast<double>(process.communicators[0].arrivals->compared * communicators) /
      static_cast<double>(operations);
  state.counters["overrun"] = static_cast<double>(
      snapshot.uncompared_operations[static_cast<size_t>(Uncompared::kRingOverrun)]);
}
BENCHMARK(BM_ArrivalInterval)
    ->ArgNames({"communicators", "busy"})
    ->Args({1, 1})
    ->Args({12, 1})
    ->Args({12, 0})
    ->Args({128, 0})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nccl_exporter::collector
