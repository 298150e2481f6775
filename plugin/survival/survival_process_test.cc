// SPDX-License-Identifier: Apache-2.0
// Events in the life of a process that the plugin survives: fork in any state, and every way to end
// without finalize.
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "plugin/survival/survival_fixture.h"

namespace {

std::atomic<bool> wipe_is_refused{false};

}  // namespace

// The library's madvise: the kernel's, or that of one before 4.14.
extern "C" __attribute__((visibility("default"))) int madvise(void* memory, size_t bytes,
                                                              int advice) noexcept {
  constexpr int kWipeOnFork = 18;
  if (advice == kWipeOnFork && wipe_is_refused) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_madvise, memory, bytes, advice));
}

namespace nccl_exporter::plugin::survival {
namespace {

class ProcessSurvival : public SurvivalTest {
 protected:
  // Whether a process holds the lock that says that the writer lives.
  static bool IsLocked(const std::string& path) {
    const int status = StatusOf([&] {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      const int file = open(path.c_str(), O_RDWR);
      _exit(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 10 : 11);
    });
    return WIFEXITED(status) && WEXITSTATUS(status) == 10;
  }

  // Wait status of a process that ends by `end`, with one operation done and one begun.
  template <typename End>
  int StatusAfter(End end) const {
    for (const std::string& path : Segments()) std::filesystem::remove(path);
    return StatusOf([&] {
      const rlimit no_core{};
      setrlimit(RLIMIT_CORE, &no_core);
      Caller<6> caller;
      caller.Run();
      caller.Kernel(caller.Announce(), 0, GpuNow());
      EXPECT_TRUE(IsLocked(Segments()[0]));
      end();
    });
  }
  void ExpectWhatWasLeft() const {
    const View view = Segment();
    EXPECT_EQ(view.State(0), layout::SlotState::kLive);
    EXPECT_EQ(view.Started(), 2u);
    EXPECT_EQ(view.Timed(), 1u);
    EXPECT_EQ(view.InFlight(), 1u) << "what the rank was in when it died";
    EXPECT_EQ(view.Lost(), Losses());
    EXPECT_FALSE(IsLocked(Segments()[0]));
  }
};

TEST_F(ProcessSurvival, SurvivesExitWithoutFinalize) {
  EXPECT_EQ(StatusAfter([] { _exit(0); }), 0);
  ExpectWhatWasLeft();
}

TEST_F(ProcessSurvival, SurvivesAbort) {
  EXPECT_EQ(WTERMSIG(StatusAfter([] { std::abort(); })), SIGABRT);
  ExpectWhatWasLeft();
}

TEST_F(ProcessSurvival, SurvivesBeingKilled) {
  EXPECT_EQ(WTERMSIG(StatusAfter([] { raise(SIGKILL); })), SIGKILL);
  ExpectWhatWasLeft();
}

// With and without MADV_WIPEONFORK.
class ForkSurvival : public ProcessSurvival, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ProcessSurvival::SetUp();
    wipe_is_refused = GetParam();
  }
  void TearDown() override {
    wipe_is_refused = false;
    ProcessSurvival::TearDown();
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, ForkSurvival, testing::Bool(), [](const auto& kernel) {
  return std::string(kernel.param ? "Before4_14" : "Since4_14");
});

TEST_P(ForkSurvival, SurvivesAForkInTheMiddleOfAnOperation) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    void* part = Caller<kVersion>::kHasKernels ? caller.Kernel(operation, 0, GpuNow())
                                               : caller.Proxy(operation);
    const std::string path = Segments()[0];
    EXPECT_EQ(StatusOf([&] {
                caller.StopKernel(part, GpuNow());  // everything of the parent's is unknown here
                caller.Complete(operation);
                EXPECT_EQ(caller.Group(), nullptr);
                caller.Run();
                caller.Finalize();
                Caller<kVersion> own({.id = 2});
                own.Run();
                caller.StopKernel(part, GpuNow());
                EXPECT_EQ(caller.Group(), nullptr);
                EXPECT_EQ(Segments().size(), 2u);
                own.Finalize();
              }),
              0);
    EXPECT_TRUE(IsLocked(path)) << "the child's end must not look like ours";
    const View view(path);
    EXPECT_EQ(view.Started(), 1u);
    EXPECT_EQ(view.Completed(), 0u);
    EXPECT_EQ(view.State(0), layout::SlotState::kLive);
    void* rest = Caller<kVersion>::kHasKernels ? caller.Kernel(operation, 1, GpuNow()) : nullptr;
    caller.StopKernel(part, GpuNow());
    caller.StopKernel(rest, GpuNow());
    caller.Finalize();
    EXPECT_EQ(view.Ended(), 1u);
    EXPECT_EQ(view.Lost(), Losses());
    for (const std::string& other : Segments()) {
      if (other == path) continue;
      EXPECT_EQ(View(other).Started(), 1u);
      EXPECT_EQ(View(other).Slot(0)->communicator_id, 2u);
    }
  });
}

// Regression: each page of the plugin was copied at the first write after a fork, by the thread
// that made the callback.
TEST_P(ForkSurvival, SurvivesForksWithoutACopyOfItsPages) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) GTEST_SKIP() << "they have pages of their own";
  InEach<5>([&]<int kVersion>() {
    Caller<kVersion> caller;
    const auto faults = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_minflt;
    };
    for (int i = 0; i < 3000; ++i) caller.Run({.channels = 24});
    const long before = faults();
    for (int i = 0; i < 600; ++i) caller.Run({.channels = 24});
    EXPECT_LE(faults() - before, 2);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();  // a data loader's, which stays
    if (child == 0) {
      char byte;
      close(ends[1]);
      _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    const long after_fork = faults();
    for (int i = 0; i < 600; ++i) caller.Run({.channels = 24});
    constexpr long kPagesOfTheTest = 12;  // stack, heap, data
    EXPECT_LE(faults() - after_fork, kPagesOfTheTest);
    for (const int end : ends) close(end);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(Segment().Timed(), 4200u);
  });
}

TEST_F(ProcessSurvival, SurvivesForksWhileOtherThreadsAreInsideInitAndFinalize) {
  if (kHasThreadSanitizer)
    GTEST_SKIP() << "the child of a process with threads waits for its own locks";
  InEach<6>([&]<int kVersion>() {
    std::atomic<bool> is_over{false};
    std::thread communicators([&] {
      for (uint64_t id = 1; !is_over.load(); ++id) {
        Caller<kVersion> caller({.id = id});
        caller.Run();
        caller.Finalize();
      }
    });
    for (int i = 0; i < 30; ++i) {
      EXPECT_EQ(StatusOf([&] {  // a lock that nobody here would ever give back must not be found
                  Caller<kVersion> own({.id = 1});
                  own.Run();
                  own.Finalize();
                  EXPECT_NE(own.context, nullptr);
                }),
                0);
    }
    is_over.store(true);
    communicators.join();
    EXPECT_EQ(Segments().size(), 31u);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
