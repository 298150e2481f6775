// SPDX-License-Identifier: Apache-2.0
// Drives the real shared library through its exported tables, as NCCL does, and reads the segment that it leaves.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "plugin/nccl/profiler_abi.h"
#include "proto/shm_layout.h"

namespace nccl_exporter {
namespace {

constexpr char kLibrary[] = "plugin/libnccl-profiler-exporter.so";

std::vector<std::string> log_lines;

void Log(int level, unsigned long, const char*, int, const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  log_lines.push_back(std::to_string(level) + " " + line);
}

using V6 = abi::ProfilerV5<abi::DescriptorV6>;

// Each test runs in a process of its own, because the library has one instance a process for good.
class LibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "libraryXXXXXX";
    directory_ = mkdtemp(pattern.data());
    setenv("NCCL_EXPORTER_DIR", directory_.c_str(), 1);
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "on", 1);
    setenv("NCCL_ALLGATHERV_ENABLE", "0", 1);  // without it, no kernel timing on API v6
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  template <typename Table = V6>
  static const Table* Load(const char* symbol = "ncclProfiler_v6") {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    return static_cast<const Table*>(dlsym(library, symbol));
  }

  // The number of failures of `body`, run in a child.
  template <typename Body>
  static void InChild(Body body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "see the failures above";
  }

  std::vector<std::string> Segments() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) paths.push_back(entry.path());
    return paths;
  }

  // The only segment, mapped for reading.
  const layout::SegmentHeader* Map() const {
    const std::vector<std::string> paths = Segments();
    EXPECT_EQ(paths.size(), 1u);
    if (paths.empty()) return nullptr;
    const int file = open(paths[0].c_str(), O_RDONLY);
    struct stat status {};
    fstat(file, &status);
    return static_cast<const layout::SegmentHeader*>(
        mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0));
  }
  static const layout::CommunicatorSlot* Slot(const layout::SegmentHeader* header, size_t index) {
    return reinterpret_cast<const layout::CommunicatorSlot*>(reinterpret_cast<const char*>(header + 1)) + index;
  }

  std::string directory_;
};

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct Job {
  const V6* table;
  void* context = nullptr;
  int mask = 0;

  explicit Job(const V6* profiler, uint64_t id = 0xabc, const char* name = "dp", int rank = 1) : table(profiler) {
    EXPECT_EQ(table->init(&context, id, &mask, name, 2, 16, rank, Log), abi::kSuccess);
  }
  void* Start(uint64_t type, void* parent, void (*fill)(abi::DescriptorV6*) = nullptr) {
    abi::DescriptorV6 descriptor{};
    descriptor.type = type;
    descriptor.parentObj = parent;
    if (fill != nullptr) fill(&descriptor);
    void* handle = reinterpret_cast<void*>(0x1234);
    table->startEvent(context, &handle, &descriptor);
    return handle;
  }
  // One AllReduce of 1 MiB on two channels, in NCCL 2.30's order; its GPU's clock is the CPU's.
  void AllReduce(uint64_t duration_ns = 2000) {
    void* group_api = Start(abi::kGroupApi, nullptr);
    table->recordEventState(group_api, 23, nullptr);
    void* call = Start(abi::kCollApi, group_api, [](abi::DescriptorV6* d) { d->collApi.func = "AllReduce"; });
    table->stopEvent(call);
    table->recordEventState(group_api, 24, nullptr);
    Launch(call, duration_ns);
    table->stopEvent(group_api);
  }
  void Launch(void* call, uint64_t duration_ns = 2000) {
    void* group = Start(abi::kGroup, nullptr);
    abi::DescriptorV6 descriptor{};
    descriptor.type = abi::kColl;
    descriptor.parentObj = call;
    descriptor.rank = 1;
    descriptor.coll.func = "AllReduce";
    descriptor.coll.count = 1 << 18;
    descriptor.coll.datatype = "ncclFloat32";
    descriptor.coll.nChannels = 2;
    descriptor.coll.parentGroup = group;
    void* coll = nullptr;
    table->startEvent(context, &coll, &descriptor);
    table->stopEvent(coll);
    table->stopEvent(group);
    const uint64_t start_ns = Now();
    const uint64_t stop_ns = start_ns + duration_ns;
    while (Now() <= stop_ns) continue;
    for (uint8_t channel = 0; channel < 2; ++channel) {
      abi::DescriptorV6 kernel{};
      kernel.type = abi::kKernelCh;
      kernel.parentObj = coll;
      kernel.kernelCh = {channel, start_ns};
      void* handle = nullptr;
      table->startEvent(context, &handle, &kernel);
      abi::StateArgs args{stop_ns};
      table->recordEventState(handle, abi::kStateKernelChStop, &args);
      table->stopEvent(handle);
    }
  }
};

uint64_t Read(const layout::Word& word) { return word.load(std::memory_order_relaxed); }

TEST_F(LibraryTest, TurnsAnAllReduceIntoIncrements) {
  InChild([&] {
    Job job(Load());
    EXPECT_EQ(job.mask, 2 | 4 | 64 | 4096);
    for (int i = 0; i < 10; ++i) job.AllReduce(2000);
    const layout::SegmentHeader* header = Map();
    const layout::CommunicatorSlot* slot = Slot(header, 0);
    EXPECT_EQ(layout::StateOf(Read(slot->state)), layout::SlotState::kLive);
    EXPECT_EQ(slot->communicator_id, 0xabcu);
    EXPECT_EQ(slot->ranks, 16u);
    EXPECT_EQ(slot->rank, 1u);
    EXPECT_EQ(slot->nodes, 2u);
    EXPECT_EQ(slot->api_version, 6u);
    EXPECT_STREQ(slot->name, "dp");
    const layout::FunctionBlock& counters = slot->functions[static_cast<size_t>(Function::kAllReduce)];
    EXPECT_EQ(Read(counters.calls), 10u);
    EXPECT_EQ(Read(counters.started.operations[3]), 10u);
    EXPECT_EQ(Read(counters.started.bytes[3]), 10u << 20);
    EXPECT_EQ(Read(counters.completed), 10u);
    EXPECT_EQ(Read(counters.timed.timed_operations[3]), 10u);
    EXPECT_EQ(Read(counters.timed.busy_ns[3]), 20'000u);
    EXPECT_EQ(Read(counters.duration[DurationBuckets::IndexOf(2000)]), 10u);
    job.table->finalize(job.context);
    EXPECT_EQ(layout::StateOf(Read(slot->state)), layout::SlotState::kClosed);
    for (const layout::Word& loss : header->losses) EXPECT_EQ(Read(loss), 0u);
  });
}

TEST_F(LibraryTest, CountsAReplayButNotTheCaptureItself) {
  InChild([&] {
    Job job(Load());
    void* group_api =
        job.Start(abi::kGroupApi, nullptr, [](abi::DescriptorV6* d) { d->groupApi.graphCaptured = true; });
    void* call = job.Start(abi::kCollApi, group_api, [](abi::DescriptorV6* d) {
      d->collApi.func = "AllReduce";
      d->collApi.graphCaptured = true;
    });
    job.table->stopEvent(call);
    job.Launch(call);  // announced at capture, where NCCL needs no host node
    job.table->stopEvent(group_api);
    const layout::FunctionBlock& counters = Slot(Map(), 0)->functions[static_cast<size_t>(Function::kAllReduce)];
    EXPECT_EQ(Read(counters.calls), 1u);
    EXPECT_EQ(Read(counters.started.operations[3]), 0u);
    std::thread host_functions([&] {
      for (int replay = 0; replay < 3; ++replay) job.Launch(call);
    });
    host_functions.join();
    EXPECT_EQ(Read(counters.started.operations[3]), 3u);
    EXPECT_EQ(Read(counters.timed.timed_operations[3]), 3u);
    EXPECT_EQ(Read(counters.calls), 1u);
  });
}

// NCCL stops the GroupApi event with a group within, and announces what was captured at the end of the outer one.
TEST_F(LibraryTest, DoesNotCountACaptureThatIsAnnouncedAfterItsGroupEvent) {
  InChild([&] {
    Job job(Load());
    const auto start = [&](uint64_t type, void* parent) {
      return job.Start(type, parent, [](abi::DescriptorV6* d) {
        if (d->type == abi::kGroupApi) {
          d->groupApi = {true, 2};
        } else {
          d->collApi.func = "AllReduce";
          d->collApi.graphCaptured = true;
        }
      });
    };
    void* of_inner_group = start(abi::kGroupApi, nullptr);
    void* first = start(abi::kCollApi, of_inner_group);
    job.table->stopEvent(first);
    job.table->stopEvent(of_inner_group);
    void* of_outer_group = start(abi::kGroupApi, nullptr);
    void* second = start(abi::kCollApi, of_outer_group);
    job.table->stopEvent(second);
    job.Launch(first);
    job.Launch(second);
    job.table->stopEvent(of_outer_group);
    const layout::FunctionBlock& counters = Slot(Map(), 0)->functions[static_cast<size_t>(Function::kAllReduce)];
    EXPECT_EQ(Read(counters.calls), 2u);
    EXPECT_EQ(Read(counters.started.operations[3]), 0u);
    std::thread host_functions([&] { job.Launch(first); });
    host_functions.join();
    EXPECT_EQ(Read(counters.started.operations[3]), 1u);
  });
}

TEST_F(LibraryTest, WritesNothingIntoItsParentsSegmentAfterAFork) {
  InChild([&] {
    Job job(Load());
    job.AllReduce();
    const layout::FunctionBlock& counters = Slot(Map(), 0)->functions[static_cast<size_t>(Function::kAllReduce)];
    InChild([&] { job.AllReduce(); });
    EXPECT_EQ(Read(counters.started.operations[3]), 1u);
    InChild([&] {
      Job anew(job.table, 0xdef);
      anew.AllReduce();
      EXPECT_EQ(Segments().size(), 2u);
    });
    EXPECT_EQ(Read(counters.started.operations[3]), 1u);
    job.AllReduce();
    EXPECT_EQ(Read(counters.started.operations[3]), 2u);
  });
}

TEST_F(LibraryTest, SharesTheOverflowSlotWhenThereAreMoreCommunicatorsThanSlots) {
  setenv("NCCL_EXPORTER_COMMUNICATORS", "1", 1);
  InChild([&] {
    const V6* table = Load();
    Job own(table, 1), shared(table, 2), also_shared(table, 3);
    own.AllReduce();
    shared.AllReduce();
    also_shared.AllReduce();
    const layout::SegmentHeader* header = Map();
    const size_t function = static_cast<size_t>(Function::kAllReduce);
    EXPECT_EQ(header->slot_count, 2u);
    EXPECT_EQ(Read(Slot(header, 0)->functions[function].completed), 1u);
    EXPECT_EQ(Read(Slot(header, 1)->functions[function].started.operations[3]), 2u);
    EXPECT_EQ(Read(Slot(header, 1)->functions[function].calls), 2u);
    EXPECT_EQ(Read(header->losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)]), 2u);
    shared.table->finalize(shared.context);
  });
}

TEST_F(LibraryTest, TakesANegativeNumberOfRanksForUnknownInTheOverflowSlotToo) {
  setenv("NCCL_EXPORTER_COMMUNICATORS", "1", 1);
  InChild([&] {
    const V6* table = Load();
    Job own(table, 1);
    void* shared = nullptr;
    int mask = 0;
    table->init(&shared, 2, &mask, "dp", 1, -1, 0, Log);
    abi::DescriptorV6 descriptor{};
    descriptor.type = abi::kColl;
    descriptor.coll.func = "AllGather";
    descriptor.coll.count = 100;
    descriptor.coll.datatype = "ncclInt8";
    void* handle = nullptr;
    table->startEvent(shared, &handle, &descriptor);
    const auto& started = Slot(Map(), 1)->functions[static_cast<size_t>(Function::kAllGather)].started;
    EXPECT_EQ(Read(started.operations[0]), 1u);
    EXPECT_EQ(Read(started.bytes[0]), 100u);
  });
  unsetenv("NCCL_EXPORTER_COMMUNICATORS");
}

TEST_F(LibraryTest, GivesUpAtFinalizeAlsoWhatIsOlderThanTheRingIsLong) {
  InChild([&] {
    Job job(Load());
    constexpr uint64_t kOperations = layout::kInFlightEntries + 100;
    for (uint64_t i = 0; i < kOperations; ++i) {  // none is ever seen to run: the first 512 keep their places
      job.Start(abi::kColl, nullptr, [](abi::DescriptorV6* d) { d->coll.func = "AllReduce"; });
    }
    job.table->finalize(job.context);
    const layout::SegmentHeader* header = Map();
    const auto loss = [&](Loss cause) { return Read(header->losses[static_cast<size_t>(cause)]); };
    EXPECT_EQ(loss(Loss::kInFlightFull), 100u);
    EXPECT_EQ(loss(Loss::kIncompleteAtFinalize), uint64_t{layout::kInFlightEntries});
    for (const layout::InFlightEntry& entry : Slot(header, 0)->in_flight) EXPECT_EQ(Read(entry.ticket), 0u);
  });
}

TEST_F(LibraryTest, TellsCapturesOnTwoCommunicatorsApart) {
  InChild([&] {
    const V6* table = Load();
    Job first(table, 1), second(table, 2);
    const auto capture = [](Job& job) {
      void* group_api =
          job.Start(abi::kGroupApi, nullptr, [](abi::DescriptorV6* d) { d->groupApi.graphCaptured = true; });
      return job.Start(abi::kCollApi, group_api, [](abi::DescriptorV6* d) {
        d->collApi.func = "AllReduce";
        d->collApi.graphCaptured = true;
      });
    };
    void* of_first = capture(first);
    void* of_second = capture(second);  // the first capture is still open, as with one thread for each GPU
    first.Launch(of_first);
    second.Launch(of_second);
    for (size_t slot = 0; slot < 2; ++slot) {
      const auto& counters = Slot(Map(), slot)->functions[static_cast<size_t>(Function::kAllReduce)];
      EXPECT_EQ(Read(counters.calls), 1u);
      EXPECT_EQ(Read(counters.started.operations[3]), 0u) << slot;
    }
  });
}

TEST_F(LibraryTest, ReusesASlotAfterTheRetentionTimeAndNotBefore) {
  setenv("NCCL_EXPORTER_COMMUNICATORS", "1", 1);
  setenv("NCCL_EXPORTER_RETENTION_SECONDS", "1", 1);
  InChild([&] {
    const V6* table = Load();
    Job first(table, 1);
    first.AllReduce();
    table->finalize(first.context);
    Job too_early(table, 2);
    const layout::SegmentHeader* header = Map();
    EXPECT_EQ(Slot(header, 0)->communicator_id, 1u);
    EXPECT_EQ(Read(header->losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)]), 1u);
    usleep(1'050'000);
    Job second(table, 3);
    EXPECT_EQ(Slot(header, 0)->communicator_id, 3u);
    EXPECT_EQ(Read(Slot(header, 0)->state), layout::StateWord(2, layout::SlotState::kLive));
    EXPECT_EQ(Read(Slot(header, 0)->functions[static_cast<size_t>(Function::kAllReduce)].calls), 0u);
    first.AllReduce();  // with the context of the communicator that is gone
    EXPECT_EQ(Read(Slot(header, 0)->functions[static_cast<size_t>(Function::kAllReduce)].calls), 0u);
    EXPECT_GT(Read(header->losses[static_cast<size_t>(Loss::kUnknownContext)]), 0u);
    unsetenv("NCCL_EXPORTER_RETENTION_SECONDS");
  });
  unsetenv("NCCL_EXPORTER_COMMUNICATORS");
  unsetenv("NCCL_EXPORTER_RETENTION_SECONDS");
}

TEST_F(LibraryTest, SaysOnceThatItCannotWorkAndLeavesTheMaskAlone) {
  setenv("NCCL_EXPORTER_DIR", "/nonexistent", 1);
  InChild([&] {
    const V6* table = Load();
    Job first(table), second(table);
    EXPECT_EQ(first.context, nullptr);
    EXPECT_EQ(first.mask, 0);
    ASSERT_EQ(log_lines.size(), 1u);
    EXPECT_EQ(
        log_lines[0],
        "2 nccl-exporter: no metrics from this process: cannot open segment directory /nonexistent: No such file or "
        "directory");
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
    EXPECT_EQ(Read(slot->functions[static_cast<size_t>(Function::kAllGather)].started.bytes[0]), 100u);
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

TEST_F(LibraryTest, ExportsSevenTablesAndNothingElseAndNeedsOnlyLibc) {
  const auto output = [](const std::string& command) {
    FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    for (int c; (c = fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    pclose(pipe);
    return text;
  };
  const std::string path(kLibrary);
  EXPECT_EQ(output("nm -D --defined-only " + path + " | awk '{print $3}' | sort | tr '\\n' ' '"),
            "ncclProfiler_v1 ncclProfiler_v2 ncclProfiler_v3 ncclProfiler_v4 ncclProfiler_v5 ncclProfiler_v6 "
            "ncclProfiler_v7 ");
  const std::string dynamic = output("readelf -d " + path);
  EXPECT_NE(dynamic.find("NODELETE"), std::string::npos);
  EXPECT_NE(dynamic.find("[libc.so.6]"), std::string::npos);
  EXPECT_EQ(dynamic.find("[libstdc++"), std::string::npos);
  EXPECT_EQ(dynamic.find("[libgcc"), std::string::npos);
#if !defined(NCCL_EXPORTER_ASAN) && !defined(NCCL_EXPORTER_UBSAN)
  EXPECT_LT(std::filesystem::file_size(path), 1u << 20);
#endif
}

TEST_F(LibraryTest, StartsNoThread) {
  const auto threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  InChild([&] {
    const auto before = threads();
    Job job(Load());
    job.AllReduce();
    EXPECT_EQ(threads(), before);
  });
}

}  // namespace
}  // namespace nccl_exporter
