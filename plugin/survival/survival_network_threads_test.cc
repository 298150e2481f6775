// SPDX-License-Identifier: Apache-2.0
// Two progress threads, as of two GPUs in one process, while windows open and close and a watchdog
// aborts communicators. Each operation whose steps were taken is counted once: with its
// communicator, or as lost.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

constexpr int kSteps = 3;

// Tasks that a calling thread hands to a progress thread.
template <int kVersion>
class Tasks {
 public:
  struct Task {
    Caller<kVersion>* caller = nullptr;
    void* operation = nullptr;
  };
  // One thread. Drops the task if there is no room.
  void Put(const Task& task) {
    Place& place = places_[put_++ % places_.size()];
    if (place.is_full.load(std::memory_order_acquire)) return;
    place.task = task;
    place.is_full.store(true, std::memory_order_release);
  }
  // One thread. Hands each task to `use`.
  template <typename Use>
  void TakeAll(Use use) {
    for (Place& place : places_) {
      if (!place.is_full.load(std::memory_order_acquire)) continue;
      use(place.task);
      place.is_full.store(false, std::memory_order_release);
    }
  }

 private:
  struct Place {
    std::atomic<bool> is_full{false};
    Task task;
  };
  std::array<Place, 8> places_;
  size_t put_ = 0;
};

// A process with two communicators of one copy of libnccl: two threads that call, two progress
// threads, and the watchdog, which is the thread that made it.
template <int kVersion>
class Job {
 public:
  Job() {
    for (size_t user = 0; user < 2; ++user) Begin(user);
    for (size_t i = 0; i < 2; ++i) {
      threads_.emplace_back([this, i] { Call(i); });
      threads_.emplace_back([this, i] { Progress(i); });
    }
  }
  ~Job() { End(); }
  void End() {
    is_over_.store(true);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  // A new communicator takes the place of the user's present one, which is not finalized.
  void Begin(size_t user) {
    const auto id = static_cast<int>(lives_.size() + 1);
    lives_.push_back(std::make_unique<Life>(
        Life{.caller = Caller<kVersion>({.id = static_cast<uint64_t>(id), .mask = &mask_})}));
    current_[user].store(lives_.back().get(), std::memory_order_release);
  }
  void Abort(size_t user) { current_[user].load()->caller.Finalize(); }

  // Until so many more operations have been timed.
  void Await(uint64_t operations) const {
    const uint64_t until = timed_operations_ + operations;
    while (timed_operations_ < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  uint64_t timed_operations() const { return timed_operations_; }
  uint64_t timed_ns() const { return timed_ns_; }

 private:
  struct Life {
    Caller<kVersion> caller;
  };

  void Call(size_t user) {
    for (size_t i = 0; !is_over_.load(std::memory_order_relaxed); ++i) {
      Life& life = *current_[user].load(std::memory_order_acquire);
      const bool asks = (__atomic_load_n(&mask_, __ATOMIC_RELAXED) & abi::kProxyStep) != 0;
      void* const operation = life.caller.Announce();
      if (asks && operation != nullptr) tasks_[user][i % 2].Put({&life.caller, operation});
      if (i % 64 == 0) std::this_thread::yield();
    }
  }
  void Progress(size_t thread) {
    while (!is_over_.load(std::memory_order_relaxed)) {
      for (size_t user = 0; user < 2; ++user) {
        tasks_[user][thread].TakeAll([&](const auto& task) {
          const uint64_t begin_ns = NowNs();
          if (!task.caller->RunProxy(task.operation, user == 0, kSteps)) return;
          timed_ns_ += NowNs() - begin_ns;
          ++timed_operations_;
        });
      }
      std::this_thread::yield();
    }
  }

  int& mask_ = nccl::NewMask(kVersion);
  std::vector<std::unique_ptr<Life>> lives_;
  std::array<std::atomic<Life*>, 2> current_{};
  std::array<std::array<Tasks<kVersion>, 2>, 2> tasks_;  // by user, then progress thread
  std::atomic<bool> is_over_{false};
  std::atomic<uint64_t> timed_operations_{0};
  std::atomic<uint64_t> timed_ns_{0};
  std::vector<std::thread> threads_;
};

// Sums over some slots of a segment.
struct Sums {
  uint64_t operations = 0;
  uint64_t waited_ns = 0;
};

class NetworkThreads : public SurvivalTest {
 protected:
  void SetUp() override {
    SurvivalTest::SetUp();
    setenv("NCCL_EXPORTER_NETWORK_TIMING", "0.5/0.1", 1);
  }
  static void Sleep(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  static void Add(const View& view, size_t slot, Sums& sums) {
    const uint64_t operations = view.NetworkOperations(slot);
    sums.operations += operations;
    for (const NetworkDirection direction : {NetworkDirection::kSend, NetworkDirection::kRecv}) {
      const layout::NetworkDirectionBlock& block = view.Network(direction, slot);
      const uint64_t bytes = Read(block.operations) * kSteps * Caller<5>::kStepBytes;
      EXPECT_EQ(Read(block.bytes), bytes) << "slot " << slot;
      sums.waited_ns += Sum(block.wait_ns);
    }
  }
  template <int kVersion>
  static void ExpectEachOnce(const View& view, const Job<kVersion>& job, const Sums& sums) {
    EXPECT_EQ(sums.operations + view.Lost(Loss::kNetworkIncomplete), job.timed_operations());
    EXPECT_LE(sums.waited_ns, job.timed_ns());
    EXPECT_GT(sums.operations, 0u);
    for (const Loss loss : {Loss::kNetworkFull, Loss::kNetworkStepMismatch, Loss::kUnknownHandle,
                            Loss::kForeignProcess, Loss::kNoFreeCommunicatorSlot})
      EXPECT_EQ(view.Lost(loss), 0u) << TraitsOf(loss).reason;
  }
};

TEST_F(NetworkThreads, CountEachOperationOnceWhileCommunicatorsAreAborted) {
  InEach<2, 3, 5, 7>([&]<int kVersion>() {
    constexpr size_t kLives = 60;
    Job<kVersion> job;
    for (size_t life = 0; life < kLives; ++life) {
      const size_t user = life % 2;
      const bool are_all_aborted = life % 5 == 0;  // their windows close
      life % 3 == 0 ? Sleep(15) : job.Await(30);
      job.Abort(user);
      if (are_all_aborted) job.Abort(1 - user);
      job.Begin(user);
      if (are_all_aborted) job.Begin(1 - user);
    }
    for (const size_t user : {0, 1}) job.Abort(user);
    job.End();
    const View view = Segment();
    Sums sums;
    for (size_t slot = 0; view.State(slot) == layout::SlotState::kClosed; ++slot)
      Add(view, slot, sums);
    ExpectEachOnce(view, job, sums);
  });
}

// The threads know nothing of each other's communicators.
TEST_F(NetworkThreads, CountEachOperationOnceInSlotsThatAreUsedAgain) {
  setenv("NCCL_EXPORTER_COMMUNICATORS", "2", 1);
  setenv("NCCL_EXPORTER_RETENTION_SECONDS", "1", 1);
  InEach<3, 7>([&]<int kVersion>() {
    Job<kVersion> job;
    const View view = Segment();
    Sums sums;
    for (int life = 0; life < 4; ++life) {
      job.Await(300);
      for (const size_t user : {0, 1}) job.Abort(user);
      Sleep(1100);
      for (const size_t slot : {0, 1}) Add(view, slot, sums);
      if (life == 3) break;
      for (const size_t user : {0, 1}) job.Begin(user);
    }
    job.End();
    ExpectEachOnce(view, job, sums);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
