// SPDX-License-Identifier: Apache-2.0
// Memory that the plugin takes, of the file system and of its process, and when.
#include <sys/mman.h>

#include <fstream>
#include <string>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

static_assert(sizeof(layout::CommunicatorSlot) == 131'072, "docs/plugin.md, SECURITY.md");
static_assert(sizeof(layout::SegmentHeader) + sizeof(layout::CommunicatorSlot) == 139'264,
              "docs/plugin.md");

class MemorySurvival : public SurvivalTest {
 protected:
  static uint64_t BytesOnDisk(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }
};

TEST_F(MemorySurvival, TakesNoMoreSharedMemoryThanAllowed) {
  const bool may_mount = MayMount();
  InChild([&] {
    ASSERT_TRUE(!may_mount || MountOwn(directory_, "size=64m"));
    Caller<6> first;
    const uint64_t first_slot_bytes = sizeof(layout::CommunicatorSlot);
    uint64_t bytes = BytesOnDisk(Segments()[0]);
    EXPECT_LE(bytes - first_slot_bytes, 1u << 20) << "at start";
    for (uint64_t id = 1; id < 100; ++id) {
      Caller<6> caller({.id = id});
      caller.Run();
      const uint64_t grown = BytesOnDisk(Segments()[0]) - bytes;
      EXPECT_LE(grown, layout::kSlotLimitBytes);
      bytes += grown;
    }
    const uint64_t at_rest = bytes;
    for (int i = 0; i < 10'000; ++i) first.Run();
    EXPECT_EQ(BytesOnDisk(Segments()[0]), at_rest) << "operations take nothing";
    std::printf("100 communicators: %llu bytes\n", static_cast<unsigned long long>(bytes));
  });
}

// mlockall(MCL_FUTURE) makes the kernel fill what is mapped.
TEST_F(MemorySurvival, TakesNoMoreSharedMemoryWhereTheJobLocksItsOwn) {
  InChild([&] {
    LoadTable<6>();
    if (mlockall(MCL_FUTURE) != 0) {
      std::printf("not run: no right to lock memory\n");
      return;
    }
    Caller<6> caller;
    if (caller.context == nullptr) {
      std::printf("not run: no right to lock so much memory\n");
      return;
    }
    const uint64_t page_bytes = 4096;
    EXPECT_LE(BytesOnDisk(Segments()[0]),
              sizeof(layout::SegmentHeader) + 2 * sizeof(layout::CommunicatorSlot) + page_bytes);
    caller.Run();
    EXPECT_EQ(Segment().Timed(), 1u);
  });
}

uint64_t PrivateDirtyKib() {
  std::ifstream smaps("/proc/self/smaps_rollup");
  std::string word;
  uint64_t kib = 0;
  while (smaps >> word) {
    if (word == "Private_Dirty:") smaps >> kib;
  }
  return kib;
}

TEST_F(MemorySurvival, TakesNoMorePrivateMemoryAfterInit) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) GTEST_SKIP() << "they take memory themselves";
  InChild([&] {
    Caller<6> caller;
    for (int i = 0; i < 2000; ++i) caller.Run();
    PrivateDirtyKib();  // the first reading takes memory itself
    const uint64_t before_kib = PrivateDirtyKib();
    ASSERT_GT(before_kib, 0u);
    constexpr int kCallbacksOfARun = 19;
    constexpr int kRuns = 10'000'000 / kCallbacksOfARun;
    for (int i = 0; i < kRuns; ++i) caller.Run();
    EXPECT_EQ(Segment().Timed(), 2000u + kRuns);
    EXPECT_LE(PrivateDirtyKib(), before_kib + 16)
        << "the reader's own mapping of the segment, at most";
  });
}

constexpr uint64_t kPrivateBytes = 393'216;  // of one communicator, as docs/plugin.md says
constexpr uint64_t kNetworkBytes = 69'632;   // more with network timing

// Pages that one communicator more takes in a process, on that release.
template <int kVersion>
uint64_t PrivatePages(int nccl_version, int nodes = 1) {
  nccl::Report(nccl_version);
  const auto taken = [] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  Caller<kVersion> first({.nodes = nodes});
  const uint64_t before = taken();
  Caller<kVersion> second({.id = 2, .nodes = nodes});
  return taken() - before;
}

TEST_F(MemorySurvival, TakesRoomForNetworkTimeOnlyWhereACommunicatorMayLeaveItsNode) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) GTEST_SKIP() << "they take memory themselves";
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto expect = [&](uint64_t pages, uint64_t bytes) { EXPECT_EQ(pages * page_bytes, bytes); };
  InChild([&] { expect(PrivatePages<6>(23007, 1), kPrivateBytes); });
  InChild([&] { expect(PrivatePages<6>(23007, 2), kPrivateBytes + kNetworkBytes); });
  InChild([&] { expect(PrivatePages<2>(22500, 1), kPrivateBytes + kNetworkBytes); });
  InChild([&] {
    setenv("NCCL_EXPORTER_NETWORK_TIMING", "off", 1);
    expect(PrivatePages<6>(23007, 2), kPrivateBytes);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
