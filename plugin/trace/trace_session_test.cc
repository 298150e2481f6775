// SPDX-License-Identifier: Apache-2.0
#include "plugin/trace/trace_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "plugin/trace/trace_lane.h"
#include "plugin/trace/trace_requester.h"

namespace nccl_exporter::plugin {
namespace {

using trace_ring::Answer;
using trace_ring::Level;
using trace_ring::Role;

constexpr uint64_t kSecond = 1'000'000'000;

class TraceSessionTest : public testing::Test {
 protected:
  TraceSessionTest() : file_(new trace_ring::File{}) { session_.Open(file_.get()); }

  // Realtime that many nanoseconds from now.
  static uint64_t In(int64_t ns) {
    return static_cast<uint64_t>(static_cast<int64_t>(ReadClock(CLOCK_REALTIME)) + ns);
  }
  static TraceRequester::Request Channels(uint64_t chunks = 64) {
    return {.begin_realtime_ns = In(0), .end_realtime_ns = In(10 * kSecond), .chunks = chunks};
  }
  Answer AnswerTo(const TraceRequester::Request& request) {
    requester_.Ask(request);
    EXPECT_FALSE(session_.IsSettled());
    session_.Take(NowNs());
    EXPECT_TRUE(requester_.IsAnswered());
    return requester_.answer();
  }
  Level LevelNow(uint64_t communicator = 1, int64_t in_ns = 0) const {
    return session_.LevelOf(NowNs() + static_cast<uint64_t>(in_ns), communicator);
  }

  std::unique_ptr<trace_ring::File> file_;
  TraceSession session_{};
  TraceRequester requester_{file_.get()};
};

TEST_F(TraceSessionTest, AsksForNothingUntilItIsAsked) {
  EXPECT_TRUE(session_.IsSettled());
  EXPECT_EQ(LevelNow(), Level::kNone);
  TraceSession without{};
  without.Open(nullptr);
  EXPECT_TRUE(without.IsSettled());
  EXPECT_EQ(without.session(), 0u);
}

TEST_F(TraceSessionTest, TakesARequestForItsTimeAndSettlesItAfterTheGrace) {
  EXPECT_EQ(AnswerTo({.level = Level::kSteps,
                      .begin_realtime_ns = In(2 * kSecond),
                      .end_realtime_ns = In(5 * kSecond)}),
            Answer::kTaken);
  EXPECT_EQ(requester_.session(), 1u);
  EXPECT_EQ(LevelNow(), Level::kNone) << "before its begin";
  EXPECT_EQ(LevelNow(1, 3 * kSecond), Level::kSteps);
  EXPECT_EQ(LevelNow(1, 6 * kSecond), Level::kNone);
  session_.Take(NowNs() + 6 * kSecond);
  EXPECT_EQ(session_.session(), 1u) << "operations of the window may still end";
  session_.Take(NowNs() + 5 * kSecond + trace_ring::kGraceNs);
  EXPECT_EQ(session_.session(), 0u);
  EXPECT_TRUE(session_.IsSettled());
}

TEST_F(TraceSessionTest, TakesOneCommunicatorWhereOneIsNamed) {
  TraceRequester::Request request = Channels();
  request.has_communicator = true;
  request.communicator_id = 7;
  EXPECT_EQ(AnswerTo(request), Answer::kTaken);
  EXPECT_EQ(LevelNow(7), Level::kChannels);
  EXPECT_EQ(LevelNow(8), Level::kNone);
}

TEST_F(TraceSessionTest, RefusesWhatItDoesNotKnowOrBoundAndSaysWhy) {
  const auto with = [](auto change) {
    TraceRequester::Request request = Channels();
    change(request);
    return request;
  };
  EXPECT_EQ(AnswerTo(with([](auto& r) { r.level = static_cast<Level>(4); })),
            Answer::kUnknownLevel);
  EXPECT_EQ(AnswerTo(with([](auto& r) { r.level = static_cast<Level>(~0ull); })),
            Answer::kUnknownLevel);
  EXPECT_EQ(AnswerTo(with([](auto& r) { r.end_realtime_ns = r.begin_realtime_ns; })),
            Answer::kWrongTimes);
  EXPECT_EQ(AnswerTo(with([](auto& r) { r.end_realtime_ns = In(61 * kSecond); })),
            Answer::kWrongTimes);
  EXPECT_EQ(AnswerTo(with([](auto& r) { r.end_realtime_ns = ~0ull; })), Answer::kWrongTimes);
  EXPECT_EQ(AnswerTo(with([](auto& r) {
              r.begin_realtime_ns = In(-9 * static_cast<int64_t>(kSecond));
              r.end_realtime_ns = In(-1);
            })),
            Answer::kWrongTimes);
  EXPECT_EQ(AnswerTo(with([](auto& r) {
              r.begin_realtime_ns = In(62 * kSecond);
              r.end_realtime_ns = In(63 * kSecond);
            })),
            Answer::kWrongTimes);
  for (const uint64_t chunks : {0ull, 1ull, 8ull, 17ull, 8192ull, 1ull << 63, ~0ull}) {
    EXPECT_EQ(AnswerTo(with([&](auto& r) { r.chunks = chunks; })), Answer::kWrongRing) << chunks;
  }
  EXPECT_EQ(LevelNow(), Level::kNone);
  EXPECT_TRUE(session_.IsSettled());
  EXPECT_EQ(AnswerTo(Channels()), Answer::kTaken) << "the next one is not worse for them";
}

TEST_F(TraceSessionTest, OpensWindowsOnceAndClosesThemAtTheEndOfTheRequest) {
  TraceRequester::Request request = Channels();
  request.level = Level::kWindows;
  request.chunks = 0;
  requester_.Ask(request);
  const TraceSession::Windows windows = session_.Take(NowNs());
  EXPECT_TRUE(windows.is_new && windows.of_kernels && windows.of_network);
  EXPECT_EQ(windows.until_realtime_ns, request.end_realtime_ns);
  EXPECT_TRUE(session_.IsSettled()) << "nothing is recorded";
  requester_.Ask({.level = Level::kNone});
  EXPECT_EQ(session_.Take(NowNs()).until_realtime_ns, 0u);
  requester_.Ask(Channels());
  EXPECT_FALSE(session_.Take(NowNs()).of_network);
  EXPECT_FALSE(session_.Take(NowNs()).is_new);
}

TEST_F(TraceSessionTest, EndsARequestEarlyIfItIsAskedTo) {
  AnswerTo(Channels());
  EXPECT_EQ(LevelNow(), Level::kChannels);
  AnswerTo({.level = Level::kNone});
  EXPECT_EQ(LevelNow(), Level::kNone);
  EXPECT_TRUE(session_.IsSettled());
}

// The control page has every kind of word at any time, as have chunks and counts.
TEST_F(TraceSessionTest, DoesNothingBeyondItsBoundsWhateverIsWritten) {
  constexpr int kRounds = 20'000;
  std::mt19937_64 random(4711);
  TraceLane lane;
  lane.Open(3, Role::kProgress, &session_);
  const auto word = [&]() -> uint64_t {
    switch (random() % 6) {
      case 0:
        return random() % 6;
      case 1:
        return In(static_cast<int64_t>(random() % (140 * kSecond)) -
                  static_cast<int64_t>(10 * kSecond));
      case 2:
        return uint64_t{1} << random() % 64;
      case 3:
        return trace_ring::OwnerWord(session_.session(), 3, Role::kProgress);
      default:
        return random();
    }
  };
  auto* const words = reinterpret_cast<AtomicU64*>(file_.get());
  constexpr size_t kFirst = offsetof(trace_ring::File, control.generation) / 8;
  constexpr size_t kControlWords = 16, kRingWords = 64 * trace_ring::kChunkBytes / 8;
  uint64_t now_ns = NowNs();
  int taken = 0;
  for (int i = 0; i < kRounds; ++i) {
    for (int change = 0; change < 4; ++change) {
      StoreRelaxed(words[kFirst + random() % kControlWords], word());
      StoreRelaxed(words[offsetof(trace_ring::File, lost) / 8 + random() % kRingWords], word());
    }
    if (random() % 8 == 0) requester_.Ask(Channels(uint64_t{16} << random() % 3));
    session_.Take(now_ns);
    taken += session_.session() != 0 ? 1 : 0;
    for (int record = 0; record < 40; ++record) lane.Write(trace_ring::MakeChannel(1, 2, 3, 4));
    ASSERT_EQ(session_.LevelOf(now_ns + trace_ring::kMostWindowNs + trace_ring::kMostAheadNs, 1),
              Level::kNone);
    if (random() % 4 == 0) now_ns += random() % kSecond;
  }
  EXPECT_GT(taken, kRounds / 4);
  session_.Take(now_ns + 200 * kSecond);
  session_.Take(now_ns + 200 * kSecond);
  EXPECT_EQ(session_.session(), 0u);
  lane.Write(trace_ring::MakeChannel(1, 2, 3, 4));
}

// Lanes.

std::vector<uint64_t> ChannelsOf(const TraceRequester::Records& records, uint32_t slot, Role role) {
  std::vector<uint64_t> starts;
  const auto lane = records.find({slot, static_cast<uint64_t>(role)});
  if (lane == records.end()) return starts;
  for (const auto& record : lane->second) {
    EXPECT_EQ(record.size(), 3u);
    EXPECT_EQ(record[2], record[1] + 1) << "whole";
    starts.push_back(record[1]);
  }
  return starts;
}

TEST_F(TraceSessionTest, WritesRecordsOfAllSizesThatAReaderFindsOnceInTheirOrder) {
  AnswerTo(Channels(16));
  TraceLane lane;
  lane.Open(9, Role::kCaller, &session_);
  TraceRequester::Records records;
  std::vector<size_t> sizes;
  for (uint64_t i = 1; i <= 20'000; ++i) {
    if (i % 3 == 0) {
      lane.Write(trace_ring::MakeOperation(1, i, 2, i, i, i));
    } else if (i % 3 == 1) {
      lane.Write(trace_ring::MakeChannel(1, i, i, i));
    } else {
      lane.Write(trace_ring::MakeStep(1, i, {i, 0, 0, 0}));
    }
    sizes.push_back(i % 3 == 0 ? 4 : i % 3 == 1 ? 3 : 6);
    if (i % 500 == 0) requester_.Read(records);
  }
  requester_.Read(records);
  const auto& lane_records = records.at({9, 0});
  EXPECT_EQ(requester_.Lost(9, Role::kCaller), 0u);
  ASSERT_EQ(lane_records.size(), sizes.size());
  // Chunks are read by their place, so an order holds within each only.
  std::vector<uint64_t> numbers;
  for (const auto& record : lane_records)
    numbers.push_back(record.size() == 4 ? record[1] : record[1]);
  std::ranges::sort(numbers);
  for (uint64_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i + 1);
}

TEST_F(TraceSessionTest, CountsWhatTheRingHasNoRoomFor) {
  AnswerTo(Channels(16));
  TraceLane lanes[2];
  lanes[0].Open(1, Role::kProgress, &session_);
  lanes[1].Open(2, Role::kProgress, &session_);
  constexpr uint64_t kRecords = 10'000;
  for (uint64_t i = 0; i < kRecords; ++i) {
    for (TraceLane& lane : lanes) lane.Write(trace_ring::MakeChannel(1, 1, i, i + 1));
  }
  TraceRequester::Records records;
  requester_.Read(records);
  uint64_t written = 0;
  for (const uint32_t slot : {1u, 2u}) {
    const std::vector<uint64_t> starts = ChannelsOf(records, slot, Role::kProgress);
    EXPECT_EQ(starts.size() + requester_.Lost(slot, Role::kProgress), kRecords) << slot;
    written += starts.size();
  }
  EXPECT_EQ(written, 16u * (trace_ring::Chunk::kWords / 3)) << "all chunks are full";
  requester_.Read(records);  // gives them back
  const uint64_t lost = requester_.Lost(1, Role::kProgress);
  constexpr uint64_t kMore = 100;
  for (uint64_t i = 0; i < kMore; ++i)
    lanes[0].Write(trace_ring::MakeChannel(1, 1, kRecords + i, kRecords + i + 1));
  records.clear();
  requester_.Read(records);
  const std::vector<uint64_t> starts = ChannelsOf(records, 1, Role::kProgress);
  EXPECT_GT(starts.size(), kMore / 2) << "a chunk is looked for again soon";
  EXPECT_EQ(starts.size() + requester_.Lost(1, Role::kProgress) - lost, kMore);
}

TEST_F(TraceSessionTest, ThreadsOfOneLaneWriteEachRecordOnce) {
  AnswerTo(Channels(2048));
  TraceLane lane;
  lane.Open(5, Role::kProgress, &session_);
  constexpr uint64_t kThreads = 4, kEach = 50'000;
  std::vector<std::thread> threads;
  std::atomic<uint64_t> running{kThreads};
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const uint64_t number = t * kEach + i;
        lane.Write(trace_ring::MakeChannel(1, 1, number, number + 1));
      }
      running.fetch_sub(1);
    });
  }
  TraceRequester::Records records;
  while (running.load() != 0) requester_.Read(records);
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 2; ++i) requester_.Read(records);
  std::vector<uint64_t> starts = ChannelsOf(records, 5, Role::kProgress);
  EXPECT_EQ(starts.size() + requester_.Lost(5, Role::kProgress), kThreads * kEach);
  EXPECT_GT(starts.size(), kEach);
  std::ranges::sort(starts);
  EXPECT_EQ(std::ranges::adjacent_find(starts), starts.end()) << "each once";
}

TEST_F(TraceSessionTest, TheNextRequestHasTheWholeRing) {
  TraceLane lane;
  lane.Open(5, Role::kProgress, &session_);
  for (uint64_t round = 1; round <= 100; ++round) {
    AnswerTo(Channels(16));
    EXPECT_EQ(requester_.session(), round);
    for (uint64_t i = 0; i < 16 * 170; ++i) lane.Write(trace_ring::MakeChannel(1, 1, i, i + 1));
    ASSERT_EQ(requester_.Lost(5, Role::kProgress), 0u) << "its requester was killed before it read";
  }
}

}  // namespace
}  // namespace nccl_exporter::plugin
