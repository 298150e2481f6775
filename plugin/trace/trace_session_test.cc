// SPDX-License-Identifier: Apache-2.0
#include "plugin/trace/trace_session.h"

#include <random>

#include "plugin/testing/trace_session_fixture.h"

namespace nccl_exporter::plugin {
namespace {

using trace_ring::Answer;
using trace_ring::Level;
using trace_ring::Role;

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

TEST_F(TraceSessionTest, OpensWindowsForStepsOnceAndClosesThemAtTheEndOfTheRequest) {
  TraceRequester::Request request = Channels();
  requester_.Ask(request);
  EXPECT_EQ(session_.Take(NowNs()), 0u) << "not for channels";
  request.level = Level::kSteps;
  requester_.Ask(request);
  EXPECT_EQ(session_.Take(NowNs()), request.end_realtime_ns);
  EXPECT_EQ(session_.Take(NowNs()), std::nullopt) << "it is not new";
  requester_.Ask({.level = Level::kNone});
  EXPECT_EQ(session_.Take(NowNs()), 0u);
}

TEST_F(TraceSessionTest, EndsARequestEarlyIfItIsAskedTo) {
  AnswerTo(Channels());
  EXPECT_EQ(LevelNow(), Level::kChannels);
  AnswerTo({.level = Level::kNone});
  EXPECT_EQ(LevelNow(), Level::kNone);
  EXPECT_TRUE(session_.IsSettled());
}

// The control page has every kind of word at any time, as have chunks and counts: 10 million words.
TEST_F(TraceSessionTest, DoesNothingBeyondItsBoundsWhateverIsWritten) {
  constexpr int kRounds = 1'250'000;
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

// The plugin writes only these parts of the file: the chunks that were asked for, the counts of
// losses, and the answer.
TEST_F(TraceSessionTest, WritesNoChunkBeyondThoseThatWereAskedFor) {
  constexpr uint64_t kChunks = 16;
  file_.Protect(kChunks);
  std::mt19937_64 random(4711);
  TraceLane lanes[3];
  for (uint32_t i = 0; i < 3; ++i) lanes[i].Open(i, Role::kProgress, &session_);
  uint64_t written = 0;
  for (int round = 0; round < 300; ++round) {
    EXPECT_EQ(AnswerTo(Channels(kChunks)), Answer::kTaken);
    for (int i = 0; i < 3'000; ++i) {
      lanes[random() % 3].Write(trace_ring::MakeChannel(1, 2, 3, 4));
      // Contents of the page and the chunks decide nothing but whether a chunk is free.
      StoreRelaxed(file_->control.chunks, random() % 2 == 0 ? 4096 : random());
      trace_ring::Chunk& chunk = file_->chunks[random() % kChunks];
      StoreRelaxed(random() % 2 == 0 ? chunk.owner : chunk.closed_words,
                   random() % 4 == 0 ? random() : 0);
    }
    for (uint64_t i = 0; i < kChunks; ++i)
      written += LoadRelaxed(file_->chunks[i].words[0]) != 0 ? 1 : 0;
  }
  EXPECT_GT(written, 300u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
