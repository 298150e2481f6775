// SPDX-License-Identifier: Apache-2.0
// Processes with rings and an observer of them, for tests of what it makes of both over time.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "collector/arrivals/arrival_observer.h"
#include "collector/segments/file_descriptor.h"
#include "collector/testing/scratch_directory.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {

inline constexpr uint64_t kMillisecond = 1'000'000;

// Segments of processes with one GPU each, and what an observer makes of them.
class ArrivalFixture : public testing::Test {
 protected:
  struct Process {
    SegmentWriterV1 writer{4};
    std::shared_ptr<const SegmentFile> file;
    bool is_alive = true;
    std::map<size_t, uint64_t> completed;  // by slot
  };

  void Start(int rank, uint64_t id = 7) {
    Process& process = processes_[rank];
    process.writer.Put(ProcessV1{.uid = ::getuid()});
    process.writer.Publish();
    Open(rank, 0, id);
    SegmentError error{};
    std::string detail;
    const FileDescriptor folder(::open(scratch_.path().c_str(), O_PATH | O_DIRECTORY));
    std::optional<SegmentFile> file =
        SegmentFile::Open(folder.number(), NameOf(rank), &error, &detail);
    ASSERT_TRUE(file) << detail;
    process.file = std::make_shared<const SegmentFile>(std::move(*file));
  }
  void Open(int rank, size_t slot, uint64_t id, uint64_t state = 2, uint64_t generation = 1) {
    processes_[rank].writer.Put(slot, CommunicatorV1{.state = state,
                                                     .generation = generation,
                                                     .id = id,
                                                     .ranks = 8,
                                                     .rank = static_cast<uint64_t>(rank),
                                                     .api_version = 6,
                                                     .gpu_uuid = "GPU-" + std::to_string(rank)});
    Write(rank);
  }
  // The next operation of a communicator: one rank is 1 ms later than the next.
  void Complete(int rank, size_t slot = 0) {
    Process& process = processes_[rank];
    const uint64_t ticket = ++process.completed[slot];
    const uint64_t start_ns = 1000 * kMillisecond + ticket * 20 * kMillisecond +
                              static_cast<uint64_t>(rank) * kMillisecond;
    const uint64_t stop_ns = 1000 * kMillisecond + ticket * 20 * kMillisecond + 8 * kMillisecond;
    process.writer.Put(slot, CompletionV1{.ticket = ticket,
                                          .function = 4,
                                          .sequence = ticket,
                                          .call_ns = start_ns - 10000,
                                          .start_ns = start_ns + 7777777,
                                          .stop_ns = stop_ns + 7777777,
                                          .delivered_ns = stop_ns + 10000});
    Write(rank);
  }
  void Write(int rank) { processes_[rank].writer.WriteTo(Path(rank)); }
  static std::string NameOf(int rank) { return std::to_string(rank) + ".seg"; }
  std::string Path(int rank) const { return scratch_.File(NameOf(rank)); }
  static FileKey KeyOf(const Process& process) {
    return nccl_exporter::collector::KeyOf(process.file->Status());
  }

  void Discover() {
    SegmentLooks looks;
    for (const auto& [rank, process] : processes_) {
      SegmentLook look{.file = process.file, .is_alive = process.is_alive, .slots = {}};
      if (process.is_alive) look.slots = ReadSlotDirectory(*process.file, nullptr);
      looks.emplace(KeyOf(process), std::move(look));
    }
    ++discoveries_;
    observer_.Discover(looks, now_, std::min(now_.monotonic_ns, known_until_ns_));
  }
  void Advance(std::chrono::nanoseconds time) { now_.monotonic_ns += time.count(); }
  // As the collector does it.
  bool Read() {
    Advance(kRingReadInterval);
    if (observer_.AwaitsDiscovery(now_)) Discover();
    return observer_.Read(now_);
  }
  CommunicatorSnapshot Seen(int rank, uint32_t slot = 0, uint64_t generation = 1,
                            uint64_t nodes = 1) {
    NodeSnapshot snapshot;
    ProcessSnapshot& process = snapshot.processes.emplace_back();
    process.file = KeyOf(processes_.at(rank));
    process.communicators.resize(1);
    process.communicators[0].slot = slot;
    process.communicators[0].generation = generation;
    process.communicators[0].nodes = nodes;
    observer_.AddTo(snapshot);
    return process.communicators[0];
  }
  std::optional<ArrivalCounts> Counts(int rank, uint32_t slot = 0, uint64_t generation = 1) {
    return Seen(rank, slot, generation).arrivals;
  }
  uint64_t Uncompared(Uncompared cause) {
    NodeSnapshot snapshot;
    observer_.AddTo(snapshot);
    return snapshot.uncompared_operations[static_cast<size_t>(cause)];
  }

  ScratchDirectory scratch_;
  std::map<int, Process> processes_;
  Moment now_{.realtime_ns = 0, .monotonic_ns = 2'000'000'000};
  int64_t known_until_ns_ = INT64_MAX;
  int discoveries_ = 0;
  ArrivalObserver observer_;
};

}  // namespace nccl_exporter::collector
