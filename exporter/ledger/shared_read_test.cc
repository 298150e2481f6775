// SPDX-License-Identifier: Apache-2.0
// Tests which callers share a read.
#include "exporter/ledger/shared_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

TEST(SharedReadTest, ReadsAnewForEachCallerThatComesAlone) {
  int reads = 0;
  SharedRead<int> shared([&] { return std::make_shared<const int>(++reads); });
  EXPECT_EQ(*shared.Get(), 1);
  EXPECT_EQ(*shared.Get(), 2);
}

TEST(SharedReadTest, ServesAResultAgainWhileItIsYoung) {
  int reads = 0;
  const auto read = [&] { return std::make_shared<const int>(++reads); };
  SharedRead<int> shared(read, std::chrono::hours(1));
  EXPECT_EQ(*shared.Get(), 1);
  EXPECT_EQ(*shared.Get(), 1);
  SharedRead<int> short_lived(read, std::chrono::nanoseconds(1));
  EXPECT_EQ(*short_lived.Get(), 2);
  EXPECT_EQ(*short_lived.Get(), 3);
}

// Regression: two results took memory during a read, and the older one after its lifetime.
TEST(SharedReadTest, LetsGoOfAnOldResult) {
  std::weak_ptr<const int> before;
  SharedRead<int> shared(
      [&] {
        EXPECT_TRUE(before.expired());
        auto result = std::make_shared<const int>(1);
        before = result;
        return result;
      },
      std::chrono::nanoseconds(1));
  shared.Get();
  shared.Get();
  EXPECT_TRUE(shared.Forget());
  EXPECT_TRUE(before.expired());
  EXPECT_FALSE(shared.Forget());
  SharedRead<int> long_lived([] { return std::make_shared<const int>(1); }, std::chrono::hours(1));
  long_lived.Get();
  EXPECT_FALSE(long_lived.Forget());
}

TEST(SharedReadTest, GoesOnAfterAReadThatThrew) {
  int reads = 0;
  SharedRead<int> shared([&] {
    if (++reads == 1) throw std::bad_alloc();
    return std::make_shared<const int>(reads);
  });
  EXPECT_THROW(shared.Get(), std::bad_alloc);
  EXPECT_EQ(*shared.Get(), 2);
}

TEST(SharedReadTest, NeverServesAResultOlderThanTheCall) {
  std::atomic<int> state{0};
  SharedRead<int> shared([&] { return std::make_shared<const int>(state.load()); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 200; ++call) {
        const int before = ++state;
        EXPECT_GE(*shared.Get(), before);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

constexpr int kWaiting = 8;

// One read that does not end before kWaiting further callers have come; returns the number of reads
// that served them all.
int ReadsForCallersThatWait() {
  std::atomic<int> called{0};
  std::atomic<int> reads{0};
  SharedRead<int> shared([&] {
    const int number = ++reads;
    while (called != kWaiting) std::this_thread::yield();
    return std::make_shared<const int>(number);
  });
  std::thread first([&] { shared.Get(); });
  while (reads == 0) std::this_thread::yield();
  std::vector<std::thread> threads;
  for (int i = 0; i < kWaiting; ++i) {
    threads.emplace_back([&] {
      ++called;
      EXPECT_GE(*shared.Get(), 2);
    });
  }
  first.join();
  for (std::thread& thread : threads) thread.join();
  return reads;
}

// A caller that is held up before its call has begun rightly needs a read of its own: so one round
// of many suffices.
TEST(SharedReadTest, ServesCallersThatWaitTogetherByOneRead) {
  int least = kWaiting + 1;
  for (int round = 0; round < 100 && least > 2; ++round)
    least = std::min(least, ReadsForCallersThatWait());
  EXPECT_EQ(least, 2);
}

}  // namespace
}  // namespace nccl_exporter::exporter
