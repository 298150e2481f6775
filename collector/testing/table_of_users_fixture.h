// SPDX-License-Identifier: Apache-2.0
// Directory of segments of several users, for tests of what they take of the table's room.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "collector/testing/table_fixture.h"

namespace nccl_exporter::collector {

// The test holds more descriptors than processes usually may; false if that cannot be had.
inline bool AllowDescriptors(rlim_t count) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(count, limit.rlim_max));
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

// A table whose directory has files of several users: they are given to them, which only root may
// do.
class TableOfUsersFixture : public TableFixture {
 protected:
  static constexpr uint64_t kBigUser = 1001, kSmallUser = 1002, kOtherUser = 1003;

  void SetUp() override {
    if (!MayGive()) GTEST_SKIP() << "needs root, to give files to other users";
    if (!AllowDescriptors(kMaxSegments + 400))
      GTEST_SKIP() << "the limit of descriptors is too low here";
    of_users_.emplace(std::vector<std::string>{scratch_.path()}, kRetention);
  }
  NodeSnapshot Snapshot() { return SnapshotOf(*of_users_, now_); }
  bool MayGive() const {
    std::ofstream{Path("gift")};
    return ::chown(Path("gift").c_str(), kBigUser, static_cast<gid_t>(-1)) == 0;
  }
  void Give(const std::string& name, uint64_t uid) const {
    ASSERT_EQ(::lchown(Path(name).c_str(), static_cast<uid_t>(uid), static_cast<gid_t>(-1)), 0);
  }
  // Published segments without communicators, of which the file system stores the header alone.
  void MakeSegments(uint64_t uid, size_t count) {
    SegmentWriterV1 writer(2);
    writer.Put(ProcessV1{.pid = uid});
    writer.Publish();
    const auto* const bytes = reinterpret_cast<const char*>(writer.bytes().data());
    for (size_t i = 0; i < count; ++i) {
      const std::string name = std::to_string(uid) + "-" + std::to_string(made_++) + ".seg";
      std::ofstream(Path(name), std::ios::binary).write(bytes, SegmentWriterV1::kHeaderBytes);
      std::filesystem::resize_file(Path(name), writer.bytes().size());
      Give(name, uid);
    }
  }
  void MakeEmpty(uint64_t uid, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const std::string name = std::to_string(uid) + "-" + std::to_string(made_++) + ".seg";
      std::ofstream{Path(name)};
      Give(name, uid);
    }
  }
  static size_t ProcessesOf(const NodeSnapshot& snapshot, uint64_t uid) {
    return static_cast<size_t>(std::ranges::count(snapshot.processes, uid, &ProcessSnapshot::uid));
  }
  static const SegmentTrouble* TroubleOf(const NodeSnapshot& snapshot, SegmentError error,
                                         uint64_t uid) {
    const auto is_it = [&](const SegmentTrouble& trouble) {
      return trouble.error == error && trouble.uid == uid;
    };
    const auto found = std::ranges::find_if(snapshot.segment_troubles, is_it);
    return found == snapshot.segment_troubles.end() ? nullptr : &*found;
  }
  static size_t OpenDescriptors() {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }

  std::optional<SegmentTable> of_users_;  // made with the limit of descriptors that it needs
  size_t made_ = 0;
};

}  // namespace nccl_exporter::collector
