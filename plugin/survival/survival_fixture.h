// SPDX-License-Identifier: Apache-2.0
// Fixture of every survival test: a process of its own for each case, and a reader's view of the
// segment left by it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plugin/survival/survival_driver.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin::survival {

#ifdef NCCL_EXPORTER_ASAN
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif
#ifdef NCCL_EXPORTER_TSAN
inline constexpr bool kHasThreadSanitizer = true;
#else
inline constexpr bool kHasThreadSanitizer = false;
#endif

using Losses = std::map<std::string, uint64_t>;

inline Losses Only(std::initializer_list<std::pair<Loss, uint64_t>> rows) {
  Losses losses;
  for (const auto& [loss, count] : rows) losses[std::string(TraitsOf(loss).reason)] = count;
  return losses;
}

inline uint64_t Read(const layout::AtomicU64& word) { return word.load(std::memory_order_relaxed); }

template <size_t kSize>
uint64_t Sum(const layout::AtomicU64 (&words)[kSize]) {
  uint64_t sum = 0;
  for (const layout::AtomicU64& word : words) sum += Read(word);
  return sum;
}

// A segment, mapped for reading. Never closed: closing any descriptor of the file would drop the
// plugin's lock.
class View {
 public:
  View() = default;
  explicit View(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY);
    struct stat status {};
    fstat(file, &status);
    void* memory =
        mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) header_ = static_cast<const layout::SegmentHeader*>(memory);
  }
  bool is_open() const { return header_ != nullptr; }
  const layout::SegmentHeader* header() const { return header_; }
  const layout::CommunicatorSlot* Slot(size_t index) const {
    return reinterpret_cast<const layout::CommunicatorSlot*>(header_ + 1) + index;
  }
  layout::SlotState State(size_t slot) const { return layout::StateOf(Read(Slot(slot)->state)); }
  const layout::FunctionBlock& Of(const char* function, size_t slot) const {
    return Slot(slot)->functions[static_cast<size_t>(FunctionByName(function))];
  }
  uint64_t Calls(const char* function = "AllReduce", size_t slot = 0) const {
    return Read(Of(function, slot).calls);
  }
  uint64_t Started(const char* function = "AllReduce", size_t slot = 0) const {
    return Sum(Of(function, slot).started.operations);
  }
  uint64_t Bytes(const char* function = "AllReduce", size_t slot = 0) const {
    return Sum(Of(function, slot).started.bytes);
  }
  uint64_t Completed(const char* function = "AllReduce", size_t slot = 0) const {
    return Read(Of(function, slot).completed);
  }
  uint64_t Timed(const char* function = "AllReduce", size_t slot = 0) const {
    return Sum(Of(function, slot).timed.timed_operations);
  }
  bool HasDurations(size_t slot = 0) const {
    return nccl_exporter::HasDurations(static_cast<TimingSource>(Slot(slot)->timing_source));
  }
  // Operations with a duration; by proxy operations, which give none, those that are complete.
  uint64_t Ended(const char* function = "AllReduce", size_t slot = 0) const {
    return HasDurations(slot) ? Timed(function, slot) : Completed(function, slot);
  }
  uint64_t BusyNs(const char* function = "AllReduce", size_t slot = 0) const {
    return Sum(Of(function, slot).timed.busy_ns);
  }
  uint64_t InHistogram(const char* function = "AllReduce", size_t slot = 0) const {
    return Sum(Of(function, slot).duration);
  }
  uint64_t InFlight(size_t slot = 0) const {
    uint64_t count = 0;
    for (const layout::InFlightEntry& entry : Slot(slot)->in_flight)
      count += Read(entry.ticket) != 0 ? 1 : 0;
    return count;
  }
  Losses Lost() const {
    Losses losses;
    for (int i = 0; i < kLossCount; ++i) {
      const uint64_t count = Read(header_->losses[i]);
      if (count != 0) losses[std::string(TraitsOf(static_cast<Loss>(i)).reason)] = count;
    }
    return losses;
  }
  const layout::NetworkDirectionBlock& Network(NetworkDirection direction, size_t slot = 0) const {
    return Slot(slot)->network.directions[static_cast<size_t>(direction)];
  }
  uint64_t NetworkOperations(size_t slot = 0) const {
    return Read(Network(NetworkDirection::kSend, slot).operations) +
           Read(Network(NetworkDirection::kRecv, slot).operations);
  }
  uint64_t Waited(NetworkDirection direction, NetworkState state, size_t slot = 0) const {
    return Read(Network(direction, slot).wait_ns[static_cast<size_t>(state)]);
  }
  uint64_t FirstCommunicator() const { return Read(header_->first_communicator); }
  bool RankNumbersProcess() const { return Read(header_->rank_numbers_process) != 0; }
  uint64_t Lost(Loss loss) const { return Read(header_->losses[static_cast<size_t>(loss)]); }

 private:
  const layout::SegmentHeader* header_ = nullptr;
};

class SurvivalTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "survivalXXXXXX";
    directory_ = mkdtemp(pattern.data());
    setenv("NCCL_EXPORTER_DIR", directory_.c_str(), 1);
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "on", 1);
    setenv("NCCL_EXPORTER_NETWORK_TIMING", "always", 1);
    setenv("NCCL_ALLGATHERV_ENABLE", "0", 1);  // without it, no kernel timing on API v6 and v7
  }
  void TearDown() override {
    for (const char* name :
         {"NCCL_EXPORTER_COMMUNICATORS", "NCCL_EXPORTER_RETENTION_SECONDS", "NCCL_EXPORTER_ENABLE"})
      unsetenv(name);
    std::filesystem::remove_all(directory_);
  }

  enum class Report { kLoud, kQuiet };
  // The wait status of a child that runs `body`; killed if it takes a minute.
  template <typename Body>
  static int StatusOf(Body body, Report report = Report::kLoud) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      if (report == Report::kQuiet) dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
      const auto failures = [] {
        return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
      };
      const int failures_before = failures();
      body();
      std::fflush(stdout);
      _exit(failures() > failures_before ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }
  template <typename Body>
  void InChild(Body body) const {
    for (const std::string& path : Segments()) std::filesystem::remove(path);
    EXPECT_EQ(StatusOf(body), 0) << "wait status of the child; see the failures above";
  }
  // One story for several API versions, each in a process of its own.
  template <int... kVersions, typename Body>
  void InEach(Body body) const {
    const auto one = [&]<int kVersion>() {
      SCOPED_TRACE("profiler API v" + std::to_string(kVersion));
      InChild([&] { body.template operator()<kVersion>(); });
    };
    (one.template operator()<kVersions>(), ...);
  }
  template <typename Body>
  void InEveryVersion(Body body) const {
    InEach<1, 2, 3, 4, 5, 6, 7>(body);
  }

  // A tmpfs of this process's own over `path`.
  static bool MountOwn(const std::string& path, const char* options, unsigned long flags = 0) {
    return unshare(CLONE_NEWNS) == 0 &&
           mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("tmpfs", path.c_str(), "tmpfs", flags, options) == 0;
  }
  // Whether a test may do so; for GTEST_SKIP.
  bool MayMount() const {
    return StatusOf([&] { EXPECT_TRUE(MountOwn(directory_, "size=1m")); }, Report::kQuiet) == 0;
  }

  std::vector<std::string> Segments() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      paths.push_back(entry.path());
    return paths;
  }
  View Segment() const {
    const std::vector<std::string> paths = Segments();
    EXPECT_EQ(paths.size(), 1u);
    return paths.size() == 1 ? View(paths[0]) : View();
  }

  std::string directory_;
};

// Operations on the only communicator: all were complete, and timed by their own times where the
// source has times, and nothing was lost.
inline void ExpectAllTimed(const View& view, uint64_t operations) {
  const uint64_t timed = view.HasDurations() ? operations : 0;
  EXPECT_EQ(view.Started(), operations);
  EXPECT_EQ(view.Completed(), operations);
  EXPECT_EQ(view.Timed(), timed);
  EXPECT_EQ(view.InHistogram(), timed);
  EXPECT_EQ(view.InFlight(), 0u);
}

}  // namespace nccl_exporter::plugin::survival
