// SPDX-License-Identifier: Apache-2.0
// Fixture of tests that drive the real shared library through its exported tables, as NCCL does,
// and read the segment that it leaves.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "plugin/nccl/profiler_abi.h"
#include "proto/shm_layout.h"

// The plugin finds NCCL's version by the address of its mask: both lie in the test program. It is
// one whose kernel events are sound on every machine.
extern "C" inline __attribute__((visibility("default"), used)) int ncclGetVersion(int* version) {
  *version = 23007;
  return 0;
}

namespace nccl_exporter::plugin {

// One for each communicator of a test, as of a copy of NCCL each.
inline std::array<int, 256> masks;
inline size_t used_masks = 0;

inline constexpr char kLibrary[] = "plugin/libnccl-profiler-exporter.so";

inline std::vector<std::string> log_lines;

inline void Log(int level, unsigned long, const char*, int, const char* format, ...) {
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
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      paths.push_back(entry.path());
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
    return reinterpret_cast<const layout::CommunicatorSlot*>(
               reinterpret_cast<const char*>(header + 1)) +
           index;
  }

  std::string directory_;
};

inline uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct Job {
  const V6* table;
  void* context = nullptr;
  int& mask = masks[used_masks++ % masks.size()] = 0;

  explicit Job(const V6* profiler, uint64_t id = 0xabc, const char* name = "dp", int rank = 1)
      : table(profiler) {
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
    void* call = Start(abi::kCollApi, group_api,
                       [](abi::DescriptorV6* d) { d->collApi.func = "AllReduce"; });
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
      abi::StateArgs args{.pTimer = stop_ns};
      table->recordEventState(handle, abi::kStateKernelChStop, &args);
      table->stopEvent(handle);
    }
  }
};

inline uint64_t Read(const layout::AtomicU64& word) { return word.load(std::memory_order_relaxed); }

}  // namespace nccl_exporter::plugin
