// SPDX-License-Identifier: Apache-2.0
// Prints what the plugin's callbacks cost against their budget, in units of one clock reading (T)
// taken in the same moment, and how they fare when eight communicators are driven by ten threads at
// once.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "plugin/bench/callback_script.h"

namespace nccl_exporter::plugin {
namespace {

constexpr int kChannels = 24;
constexpr size_t kBatch = 16;
constexpr size_t kBatches = 20'000;
constexpr size_t kCommunicators = 8;
constexpr size_t kUserThreads = 2;

using Batch = std::array<void*, kBatch>;  // handles of Coll events

const GpuClock& Clock() {
  static const GpuClock clock;
  return clock;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The parts of a batch of collectives, one after the other, so that the clock is read a few times a
// batch only.
class Player {
 public:
  Player(const CallbackScript::Table& table, void* context) : script_(table), context_(context) {}

  void CallAll(Batch& colls) {
    for (void*& coll : colls) coll = script_.Call(context_, kChannels);
  }
  // Starts all channels and stops all but the last of each collective. With two readings of the
  // clock for each collective, if the time of the stops is wanted.
  template <bool kReadsClock = false>
  void RunChannels(const Batch& colls) {
    gpu_ns_ = Clock().Now();
    for (size_t i = 0; i < kBatch; ++i) {
      const uint64_t start_ns = gpu_ns_ + i * GpuClock::kRunNs;
      std::array<void*, kChannels> handles;
      for (uint8_t c = 0; c < kChannels; ++c)
        handles[c] = script_.StartChannel(context_, colls[i], c, start_ns);
      const uint64_t started = kReadsClock ? ReadBenchmarkClock() : 0;
      for (uint8_t c = 0; c + 1 < kChannels; ++c)
        script_.StopChannel(handles[c], start_ns + GpuClock::kRunNs);
      if (kReadsClock) stopping_ns_ += ReadBenchmarkClock() - started;
      last_[i] = handles[kChannels - 1];
    }
    is_followed_ = is_followed_ && last_[kBatch - 1] != nullptr;
  }
  void Complete() {
    for (size_t i = 0; i < kBatch; ++i)
      script_.StopChannel(last_[i], gpu_ns_ + (i + 1) * GpuClock::kRunNs);
  }
  bool is_followed() const { return is_followed_; }
  // Nanoseconds in stops of all channels but the last, so far.
  uint64_t stopping_ns() const { return stopping_ns_; }

 private:
  CallbackScript script_;
  void* context_;
  Batch last_{};
  uint64_t gpu_ns_ = 0;
  uint64_t stopping_ns_ = 0;
  bool is_followed_ = true;
};

// Cost of one collective, in T.
struct Cost {
  double user = 0;
  double channel = 0;
  double completion = 0;
  double total = 0;
};

Cost MeasureOneThread(const CallbackScript::Table& table) {
  Player player(table, CallbackScript::OpenCommunicator(table));
  std::vector<double> user, channel, completion, total;
  Batch colls;
  for (size_t n = 0; n < kBatches; ++n) {
    const uint64_t begin = ReadBenchmarkClock();
    for (size_t i = 0; i < kBatch; ++i) ReadBenchmarkClock();
    const uint64_t read = ReadBenchmarkClock();
    player.CallAll(colls);
    const uint64_t called = ReadBenchmarkClock();
    const uint64_t stopping_before_ns = player.stopping_ns();
    player.RunChannels<true>(colls);
    const uint64_t ran = ReadBenchmarkClock();
    player.Complete();
    const uint64_t completed = ReadBenchmarkClock();
    // Time of one reading of the clock: every interval contains one.
    const double t = static_cast<double>(read - begin) / (kBatch + 1);
    const auto each = [t](uint64_t interval_ns) {
      return (static_cast<double>(interval_ns) - t) / kBatch / t;
    };
    const double run = each(ran - called) - 2;  // the readings in between
    const double stop =
        (static_cast<double>(player.stopping_ns() - stopping_before_ns) / kBatch / t - 1) /
        (kChannels - 1);
    user.push_back(each(called - read));
    channel.push_back((run + stop) / kChannels);
    completion.push_back(each(completed - ran) - stop);
    total.push_back(each(called - read) + run + each(completed - ran));
  }
  if (!player.is_followed())
    std::puts("the communicator was not followed to the end: these figures mean nothing");
  return {Median(user), Median(channel), Median(completion), Median(total)};
}

uint64_t ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Batches on their way from a user thread to the progress thread of their communicator.
class Queue {
 public:
  void Push(const Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return batches_.size() < 4;
    });  // operations in flight fit into the plugin's ring
    batches_.push_back(batch);
    changed_.notify_all();
  }
  void Close() {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  bool Pop(Batch* batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_closed_ || !batches_.empty(); });
    if (batches_.empty()) return false;
    *batch = batches_.front();
    batches_.pop_front();
    changed_.notify_all();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> batches_;
  bool is_closed_ = false;
};

// CPU nanoseconds in callbacks for each collective, by one thread: what the same measure gives with
// many.
double MeasureCpuOfOneThread(const CallbackScript::Table& table, size_t batches) {
  Player player(table, CallbackScript::OpenCommunicator(table));
  uint64_t spent_ns = 0;
  Batch colls;
  for (size_t n = 0; n < batches; ++n) {
    const uint64_t begin = ThreadCpuNs();
    player.CallAll(colls);
    const uint64_t called = ThreadCpuNs();
    player.RunChannels(colls);
    player.Complete();
    spent_ns += called - begin + (ThreadCpuNs() - called);
  }
  return static_cast<double>(spent_ns) / static_cast<double>(batches * kBatch);
}

double MeasureCpuOfManyThreads(const CallbackScript::Table& table, size_t batches) {
  std::array<void*, kCommunicators> contexts;
  for (void*& context : contexts) context = CallbackScript::OpenCommunicator(table);
  std::array<Queue, kCommunicators> queues;
  std::atomic<uint64_t> spent_ns{0};
  std::vector<std::thread> users, progress;
  for (size_t user = 0; user < kUserThreads; ++user) {
    users.emplace_back([&, user] {
      for (size_t n = 0; n < batches; ++n) {
        for (size_t i = user; i < kCommunicators; i += kUserThreads) {
          Player player(table, contexts[i]);
          Batch colls;
          const uint64_t begin = ThreadCpuNs();
          player.CallAll(colls);
          spent_ns += ThreadCpuNs() - begin;
          queues[i].Push(colls);
        }
      }
      for (size_t i = user; i < kCommunicators; i += kUserThreads) queues[i].Close();
    });
  }
  for (size_t i = 0; i < kCommunicators; ++i) {
    progress.emplace_back([&, i] {
      Player player(table, contexts[i]);
      Batch colls;
      while (queues[i].Pop(&colls)) {
        const uint64_t begin = ThreadCpuNs();
        player.RunChannels(colls);
        player.Complete();
        spent_ns += ThreadCpuNs() - begin;
      }
    });
  }
  for (std::thread& thread : users) thread.join();
  for (std::thread& thread : progress) thread.join();
  return static_cast<double>(spent_ns) / static_cast<double>(batches * kBatch * kCommunicators);
}

// Nanoseconds of every single callback of collectives, one after the other on one thread; a reading
// of the clock and interruptions of the thread by the machine are included.
std::vector<double> MeasureEveryCallback(const CallbackScript::Table& timed) {
  static const CallbackScript::Table* real;
  static std::vector<double> times;
  real = &timed;
  constexpr size_t kCollectives = 10'000;
  times.reserve(kCollectives * (10 + 3 * kChannels));
  const auto measure = [](auto call) {
    const uint64_t begin = Clock().Now();
    const abi::Result result = call();
    times.push_back(static_cast<double>(Clock().Now() - begin));
    return result;
  };
  static const auto note = measure;
  CallbackScript::Table table = timed;
  table.startEvent = [](void* context, void** handle, abi::DescriptorV6* descriptor) {
    return note([&] { return real->startEvent(context, handle, descriptor); });
  };
  table.stopEvent = [](void* handle) { return note([&] { return real->stopEvent(handle); }); };
  table.recordEventState = [](void* handle, int state, abi::StateArgs* args) {
    return note([&] { return real->recordEventState(handle, state, args); });
  };
  Player player(table, CallbackScript::OpenCommunicator(table));
  Batch colls;
  for (size_t n = 0; n < kCollectives / kBatch; ++n) {
    player.CallAll(colls);
    player.RunChannels(colls);
    player.Complete();
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace
}  // namespace nccl_exporter::plugin

int main() {
  using namespace nccl_exporter::plugin;
  const auto& table = CallbackScript::LoadTable();
  const Cost cost = MeasureOneThread(table);
  const auto row = [](const char* what, double value, double budget) {
    std::printf("%-58s %8.2f T   budget %5.2f T   %s\n", what, value, budget,
                value <= budget ? "within" : "OVER");
  };
  std::printf(
      "\nBudget: T is one clock_gettime(CLOCK_MONOTONIC) of the same moment; %d channels; medians "
      "of %zu batches\n",
      kChannels, kBatches);
  row("user-thread part of a collective (10 callbacks)", cost.user, 3);
  row("start, record and stop of a channel (3 callbacks)", cost.channel, 0.73);
  row("completion (the last stop, beyond a channel's own)", cost.completion, 3.2);
  row("collective in all", cost.total, 24);

  constexpr size_t kThreadBatches = 2'000;
  const double alone = MeasureCpuOfOneThread(table, kThreadBatches * 4);
  const double together = MeasureCpuOfManyThreads(table, kThreadBatches);
  std::printf("%-58s %8.2f x   budget %5.1f x   %s\n",
              "CPU with 8 communicators on 2 + 8 threads, against 1 thread", together / alone, 1.5,
              together <= 1.5 * alone ? "within" : "OVER");

  const std::vector<double> times = MeasureEveryCallback(table);
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf(
      "of %zu callbacks, one by one: p50 %.0f ns, p99 %.0f ns, p99.9 %.0f ns, worst %.0f ns "
      "(interrupts of the machine included)\n",
      times.size(), at(0.5), at(0.99), at(0.999), times.back());
  return 0;
}
