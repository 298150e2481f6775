// SPDX-License-Identifier: Apache-2.0
#include "plugin/chain/pair_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace nccl_exporter::plugin {
namespace {

void* At(uint64_t bits) { return reinterpret_cast<void*>(bits); }

class PairPoolTest : public testing::Test {
 protected:
  PairPoolTest() { pool_->Open(0xbeef); }
  void* Take(uint64_t number, PairRing ring = PairRing::kParts) {
    return pool_->Take(ring, At(number), At(~number), number);
  }

  std::unique_ptr<PairPool> pool_ = std::make_unique<PairPool>();
};

TEST_F(PairPoolTest, FindsWhatWasTakenInEachRing) {
  for (const PairRing ring :
       {PairRing::kContexts, PairRing::kCaptured, PairRing::kTasks, PairRing::kParts}) {
    void* const handle = Take(7, ring);
    const bool is_context = ring == PairRing::kContexts;
    const Pair pair = is_context ? pool_->FindContext(handle) : pool_->FindEvent(handle);
    const Pair other = is_context ? pool_->FindEvent(handle) : pool_->FindContext(handle);
    EXPECT_EQ(other.theirs, nullptr) << "of another kind";
    EXPECT_EQ(pair.ours, At(7));
    EXPECT_EQ(pair.theirs, At(~uint64_t{7}));
    EXPECT_EQ(pair.note, 7u);
    EXPECT_TRUE(pair.is_live);
    EXPECT_EQ(PairPool::RingOf(handle), ring);
  }
}

TEST_F(PairPoolTest, TakesAllOtherBitsForAHandleOfOurs) {
  Take(1);
  for (const uint64_t bits :
       {uint64_t{0}, uint64_t{1}, uint64_t{3}, ~uint64_t{0}, uint64_t{0xbeef} << 48,
        uint64_t{0xbeef} << 48 | 1, uint64_t{0xbeefcfffffffffff}, uint64_t{0x123400000000abcd}}) {
    const Pair pair = pool_->FindEvent(At(bits));
    EXPECT_EQ(pair.ours, At(bits)) << bits;
    EXPECT_EQ(pair.handle, At(bits)) << bits;
    EXPECT_EQ(pair.theirs, nullptr) << bits;
    EXPECT_FALSE(pair.is_live) << bits;
    pool_->Drop(At(bits));
  }
}

TEST_F(PairPoolTest, RemembersAStoppedPair) {
  void* const handle = Take(1);
  pool_->Drop(handle);
  EXPECT_EQ(pool_->FindEvent(handle).ours, At(1));
  EXPECT_FALSE(pool_->FindEvent(handle).is_live);
  for (uint64_t i = 1; i < PairPool::kPairs; ++i) pool_->Drop(Take(i));
  EXPECT_EQ(pool_->FindEvent(handle).ours, At(1)) << "as many as there are";
  pool_->Drop(Take(2));
  EXPECT_EQ(pool_->FindEvent(handle).theirs, nullptr) << "its place was used again";
}

TEST_F(PairPoolTest, PassesOverALivePair) {
  void* const handle = Take(1);
  for (uint64_t i = 0; i < 3 * PairPool::kPairs; ++i) pool_->Drop(Take(i));
  EXPECT_TRUE(pool_->FindEvent(handle).is_live);
}

TEST_F(PairPoolTest, UsesLivePairsAgainIfThereAreNoOthers) {
  void* const first = Take(1);
  for (uint64_t i = 0; i < 2 * PairPool::kPairs; ++i) Take(i);
  EXPECT_EQ(pool_->FindEvent(first).theirs, nullptr);
}

TEST_F(PairPoolTest, NeverMixesPairs) {
  std::vector<std::thread> threads;
  std::atomic<uint64_t> wrong = 0;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      void* former[64] = {};
      for (uint64_t i = 0; i < 200'000; ++i) {
        const uint64_t number = t << 32 | i;
        void*& place = former[i % 64];
        const Pair pair = pool_->FindEvent(place);  // of a handle that others may have used again
        if (pair.theirs != nullptr && pair.theirs != At(~reinterpret_cast<uint64_t>(pair.ours)))
          ++wrong;
        place = Take(number);
        const Pair own = pool_->FindEvent(place);  // or used again, if this thread was held up
        if (own.theirs != nullptr && own.ours != At(number)) ++wrong;
        if (i % 3 != 0) pool_->Drop(place);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
