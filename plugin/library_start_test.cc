// SPDX-License-Identifier: Apache-2.0
// Start of the real shared library: its exports, and the cases in which it does nothing.
#include <regex>
#include <set>
#include <utility>

#include "plugin/testing/library_fixture.h"

namespace nccl_exporter::plugin {
namespace {

TEST_F(LibraryTest, ReusesASlotBeforeTheRetentionTimeOnlyIfNoOtherIsLeft) {
  setenv("NCCL_EXPORTER_COMMUNICATORS", "2", 1);
  InChild([&] {
    const V6* table = Load();
    Job first(table, 1);
    first.AllReduce();
    table->finalize(first.context);
    Job in_another(table, 2);
    const layout::SegmentHeader* header = Map();
    EXPECT_EQ(Slot(header, 0)->communicator_id, 1u);
    EXPECT_EQ(Slot(header, 1)->communicator_id, 2u);
    Job second(table, 3);
    EXPECT_EQ(Slot(header, 0)->communicator_id, 3u);
    EXPECT_EQ(Read(Slot(header, 0)->state), layout::StateWord(2, layout::SlotState::kLive));
    EXPECT_EQ(Read(Slot(header, 0)->functions[static_cast<size_t>(Function::kAllReduce)].calls),
              0u);
    first.AllReduce();  // with the context of the communicator that is gone
    EXPECT_EQ(Read(Slot(header, 0)->functions[static_cast<size_t>(Function::kAllReduce)].calls),
              0u);
    EXPECT_GT(Read(header->losses[static_cast<size_t>(Loss::kUnknownContext)]), 0u);
    Job without(table, 4);
    EXPECT_EQ(Slot(header, 0)->communicator_id, 3u) << "a live one is not given up";
    EXPECT_EQ(Read(header->losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)]), 1u);
  });
  unsetenv("NCCL_EXPORTER_COMMUNICATORS");
}

// A later NCCL may know more functions than the table of today has.
TEST_F(LibraryTest, HasNullPointersBehindEachTable) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (int version = 1; version <= 7; ++version) {
    const std::string name = "ncclProfiler_v" + std::to_string(version);
    const auto* const words = static_cast<const uint64_t*>(dlsym(library, name.c_str()));
    ASSERT_NE(words, nullptr) << name;
    constexpr size_t kKnown = 6, kBehind = 16;
    for (size_t i = 0; i < kKnown; ++i) EXPECT_NE(words[i], 0u) << name << " word " << i;
    for (size_t i = kKnown; i < kKnown + kBehind; ++i)
      EXPECT_EQ(words[i], 0u) << name << " word " << i;
  }
}

TEST_F(LibraryTest, SaysOnceThatItCannotWorkAndLeavesTheMaskAlone) {
  setenv("NCCL_EXPORTER_DIR", "/nonexistent", 1);
  InChild([&] {
    const V6* table = Load();
    Job first(table), second(table);
    EXPECT_EQ(first.context, nullptr);
    EXPECT_EQ(first.mask, 0);
    ASSERT_EQ(log_lines.size(), 1u);
    EXPECT_EQ(log_lines[0],
              "2 nccl-exporter: no metrics from this process: cannot open segment directory "
              "/nonexistent: No such file or directory");
    first.AllReduce();
    EXPECT_EQ(table->finalize(nullptr), abi::kSuccess);
  });
}

TEST_F(LibraryTest, IsSwitchedOffByItsVariable) {
  setenv("NCCL_EXPORTER_ENABLE", "0", 1);
  InChild([&] {
    Job job(Load());
    EXPECT_EQ(job.mask, 0);
    EXPECT_TRUE(Segments().empty());
  });
  unsetenv("NCCL_EXPORTER_ENABLE");
}

TEST_F(LibraryTest, LearnsTheCommunicatorFromItsFirstOperationWhereInitDoesNotTell) {
  InChild([&] {
    using V2 = abi::ProfilerV1<abi::DescriptorV2>;
    const V2* table = Load<V2>("ncclProfiler_v2");
    void* context = nullptr;
    int mask = 0;
    EXPECT_EQ(table->init(&context, &mask), abi::kSuccess);
    EXPECT_EQ(mask, 2 | 4 | 8);
    const layout::CommunicatorSlot* slot = Slot(Map(), 0);
    EXPECT_EQ(slot->has_identity, 0u);
    abi::DescriptorV2 descriptor{};
    descriptor.type = abi::kColl;
    descriptor.rank = 5;
    descriptor.coll.commHash = 0x77;
    descriptor.coll.func = "AllGather";
    descriptor.coll.count = 100;
    descriptor.coll.datatype = "ncclInt8";
    void* handle = nullptr;
    table->startEvent(context, &handle, &descriptor);
    EXPECT_NE(handle, nullptr);
    EXPECT_EQ(slot->has_identity, 1u);
    EXPECT_EQ(slot->communicator_id, 0x77u);
    EXPECT_EQ(slot->rank, 5u);
    EXPECT_EQ(Read(slot->functions[static_cast<size_t>(Function::kAllGather)].started.bytes[0]),
              100u);
  });
}

TEST_F(LibraryTest, AlwaysWritesTheHandleSlot) {
  InChild([&] {
    Job job(Load());
    EXPECT_EQ(job.Start(abi::kProxyCtrl, nullptr), nullptr);
    EXPECT_EQ(job.Start(1 << 20, nullptr), nullptr);
    job.context = reinterpret_cast<void*>(0x5555555555555555);
    EXPECT_EQ(job.Start(abi::kColl, nullptr), nullptr);
    job.context = nullptr;
    EXPECT_EQ(job.Start(abi::kGroup, nullptr), nullptr);
  });
}

std::string Output(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (int c; (c = fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  pclose(pipe);
  return text;
}

TEST_F(LibraryTest, ExportsSevenTablesAndNothingElse) {
  const std::string path(kLibrary);
  EXPECT_EQ(Output("nm -D --defined-only " + path + " | awk '{print $3}' | sort | tr '\\n' ' '"),
            "ncclProfiler_v1 ncclProfiler_v2 ncclProfiler_v3 ncclProfiler_v4 ncclProfiler_v5 "
            "ncclProfiler_v6 ncclProfiler_v7 ");
  EXPECT_NE(Output("readelf -d " + path).find("NODELETE"), std::string::npos);
#if !defined(NCCL_EXPORTER_ASAN) && !defined(NCCL_EXPORTER_UBSAN)
  EXPECT_LT(std::filesystem::file_size(path), 1u << 20);
#endif
}

#if !defined(NCCL_EXPORTER_ASAN) && !defined(NCCL_EXPORTER_UBSAN) && !defined(NCCL_EXPORTER_TSAN)
// All parts of `text` that `pattern` has in its parentheses, each once.
std::set<std::string> All(const std::string& text, const char* pattern) {
  const std::regex expression(pattern);
  std::set<std::string> all;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    all.insert((*match)[1]);
  return all;
}

// Regression: it asked for glibc 2.34, which containers made from RHEL 8 or Ubuntu 20.04 lack.
TEST_F(LibraryTest, NeedsNothingButGlibc2_17) {
  const std::string versions = Output(std::string("readelf -V -W ") + kLibrary);
  const std::set<std::string> needed = All(versions, "Name: ([A-Za-z]+_[A-Z0-9.]+)");
  EXPECT_TRUE(needed.contains("GLIBC_2.17"));
  for (const std::string& version : needed) {
    int major = 0, minor = 0;
    ASSERT_GE(std::sscanf(version.c_str(), "GLIBC_%d.%d", &major, &minor), 2) << version;
    EXPECT_LE(std::pair(major, minor), std::pair(2, 17)) << version;
  }
}

// Before glibc 2.34, dlopen and pthread_getspecific were in libraries of their own. Regression: the
// versions were those of libc.so.6, and the loader of glibc 2.23 refused the library in programs
// that have libc.so.6 before libpthread.so.0.
TEST_F(LibraryTest, NamesTheLibrariesThatHaveItsFunctionsInOldSystems) {
  const std::string dynamic = Output(std::string("readelf -d -W ") + kLibrary);
  std::set<std::string> needed = All(dynamic, "NEEDED\\).*\\[(.*)\\]");
  needed.erase("ld-linux-aarch64.so.1");  // on Arm: __stack_chk_guard
  const std::set<std::string> libraries{"libc.so.6", "libdl.so.2", "libpthread.so.0"};
  EXPECT_EQ(needed, libraries);
  std::set<std::string> versioned =
      All(Output(std::string("readelf -V -W ") + kLibrary), "File: (\\S+)");
  versioned.erase("ld-linux-aarch64.so.1");
  EXPECT_EQ(versioned, libraries);
}
#endif

TEST_F(LibraryTest, StartsNoThread) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  InChild([&] {
    const auto before = threads();
    Job job(Load());
    job.AllReduce();
    EXPECT_EQ(threads(), before);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin
