// SPDX-License-Identifier: Apache-2.0
// TableFixture, for tests of segments over time: a directory, a table, and a clock that the test
// moves.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "collector/reader/moment.h"
#include "collector/segments/segment_table.h"
#include "collector/testing/descriptor_shortage.h"
#include "collector/testing/scratch_directory.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {

// All that is needed before Read() at once, however long it takes.
inline SegmentLooks Refresh(SegmentTable& table, const Moment& now) {
  for (table.Discover(now); table.IsDiscovering();) table.DiscoverMore(now);
  return table.Look(now);
}

inline NodeSnapshot SnapshotOf(SegmentTable& table, const Moment& now) {
  return table.Read(Refresh(table, now), now);
}

class TableFixture : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kRetention{300};

  // A segment with one communicator and `operations` AllReduces.
  static SegmentWriterV1 SegmentWith(uint64_t operations, uint64_t pid = 1) {
    SegmentWriterV1 writer(2);
    writer.Put(ProcessV1{.pid = pid, .uid = ::getuid()});
    writer.Put(0, CommunicatorV1{});
    writer.Put(0, 4, FunctionV1{.operations = {operations}});
    writer.Publish();
    return writer;
  }

  std::string Path(const std::string& name) const { return scratch_.File(name); }
  bool Exists(const std::string& name) const { return std::filesystem::exists(Path(name)); }
  void SetAge(const std::string& name, std::chrono::seconds age) const {
    std::filesystem::last_write_time(Path(name),
                                     std::filesystem::file_time_type::clock::now() - age);
  }

  void Advance(std::chrono::nanoseconds time) {
    now_.realtime_ns += time.count();
    now_.monotonic_ns += time.count();
  }

  NodeSnapshot Snapshot() { return SnapshotOf(table_, now_); }
  // Nothing but the table runs in the shortage: a sanitizer needs descriptors for its own checks.
  NodeSnapshot SnapshotWithDescriptors(int free) {
    SegmentTable& table = table_;
    const Moment now = now_;
    const DescriptorShortage shortage(free);
    return SnapshotOf(table, now);
  }
  static uint64_t Count(const NodeSnapshot& snapshot, SegmentError error) {
    return snapshot.segment_errors[static_cast<size_t>(error)];
  }
  static uint64_t OperationsOf(const ProcessSnapshot& process) {
    return process.communicators.at(0).functions[4].sizes.at(0).operations;
  }

  ScratchDirectory scratch_;
  Moment now_ = Now();
  SegmentTable table_{{scratch_.path()}, kRetention};
};

}  // namespace nccl_exporter::collector
