// SPDX-License-Identifier: Apache-2.0
#include "simulator/network/proxy_operation.h"

#include <gtest/gtest.h>

#include <map>

#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {
namespace {

using Kind = StepCall::Kind;

constexpr int64_t kMs = 1000000;
constexpr uint64_t kChunk = 1000;

struct Played {
  std::vector<StepCall> calls;
  std::vector<int64_t> at_ns;  // of the calls
  int64_t end_ns = 0;
};

Played Play(ProxyOperation& operation) {
  Played played;
  for (int64_t next_ns = 0; next_ns < kNever;) {
    played.end_ns = next_ns;
    next_ns = operation.Progress(played.end_ns, played.calls);
    played.at_ns.resize(played.calls.size(), played.end_ns);
  }
  return played;
}

std::vector<StepTimes> TransferOf(int steps, int overlap, const HopTimes& hop = {},
                                  int64_t sender_ns = kMs, int64_t receiver_ns = kMs) {
  return StepsOf({.ranks = {{0, sender_ns}, {0, receiver_ns}},
                  .hops = {hop},
                  .steps = steps,
                  .overlap = overlap,
                  .stop_ns = 11 * kMs})[0];
}

std::vector<EventState> StatesOf(const Played& played, int step) {
  std::vector<EventState> states;
  for (const StepCall& call : played.calls) {
    if (call.step == step && call.kind == Kind::kRecord) states.push_back(call.state);
  }
  return states;
}

TEST(ProxyOperation, GoesThroughTheStatesOfNccl) {
  ProxyOperation send(true, TransferOf(20, 8), 8, {}, 20 * kChunk, kChunk);
  EXPECT_EQ(StatesOf(Play(send), 5),
            (std::vector{EventState::kProxyStepSendGpuWait, EventState::kProxyStepSendPeerWait,
                         EventState::kProxyStepSendWait}));
  ProxyOperation receive(false, TransferOf(20, 8), 8, {}, 20 * kChunk, kChunk);
  EXPECT_EQ(StatesOf(Play(receive), 5),
            (std::vector{EventState::kProxyStepRecvWait, EventState::kProxyStepRecvFlushWait,
                         EventState::kProxyStepRecvGpuWait}));
}

TEST(ProxyOperation, HasAsManyStepsUnderWayAsItMayAndNoMore) {
  for (const bool is_send : {true, false}) {
    for (const int overlap : {1, 2, 4, 8}) {
      ProxyOperation operation(is_send, TransferOf(30, overlap), overlap, {}, 30 * kChunk, kChunk);
      std::map<int, int> under_way;
      int most = 0;
      for (const StepCall& call : Play(operation).calls) {
        if (call.kind == Kind::kStart) under_way[call.step] = 1;
        if (call.kind == Kind::kStop) under_way.erase(call.step);
        most = std::max(most, static_cast<int>(under_way.size()));
      }
      EXPECT_TRUE(operation.IsDone());
      EXPECT_EQ(most, overlap);
      EXPECT_TRUE(under_way.empty());
    }
  }
}

// The receiver takes up no receive before 6 ms: its GPU has read nothing. That is 5 ms of polls.
TEST(ProxyOperation, RepeatsThePeersWaitAtEveryPollUpToALimit) {
  for (const int most : {0, 100, 10000}) {
    ProxyOperation send(true, TransferOf(20, 8, {}, kMs, 6 * kMs), 8,
                        {.interval_ns = 500, .most_repeats = most}, 20 * kChunk, kChunk);
    const auto waits = static_cast<int>(StatesOf(Play(send), 8).size());
    EXPECT_TRUE(send.IsDone());
    if (most < 10000) {
      EXPECT_NEAR(waits, most + 4, 1) << most;  // 8, the first 20, that of the post, 9
    } else {
      EXPECT_GT(waits, 8000);
    }
  }
}

TEST(ProxyOperation, RepeatsTheStartUntilTheAdapterTakesTheReceive) {
  for (const int most : {0, 3000}) {
    ProxyOperation receive(false, TransferOf(4, 8, {.receiver = 20}), 8,
                           {.interval_ns = 500, .most_repeats = most}, 4 * kChunk, kChunk);
    int starts = 0;
    for (const StepCall& call : Play(receive).calls) starts += call.kind == Kind::kStart ? 1 : 0;
    EXPECT_TRUE(receive.IsDone());
    EXPECT_EQ(starts > 1000, most > 0) << starts;
  }
}

// The thread notes each event as it happened, but for the time until its next poll.
TEST(ProxyOperation, MarksAreAtMostOnePollLate) {
  for (const int64_t interval_ns : {1000, 20000}) {
    const std::vector<StepTimes> times = TransferOf(20, 8, {.wire = 3});
    ProxyOperation send(true, times, 8, {.interval_ns = interval_ns}, 20 * kChunk, kChunk);
    Play(send);
    ProxyOperation receive(false, times, 8, {.interval_ns = interval_ns}, 20 * kChunk, kChunk);
    Play(receive);
    const int64_t late_ns = interval_ns + 500;  // and what it does before
    for (size_t i = 0; i < times.size(); ++i) {
      const auto& sent = send.marks()[i].at_ns;
      EXPECT_GE(sent[3], times[i].sent_ns);
      EXPECT_LE(sent[3], times[i].sent_ns + late_ns);
      const auto& received = receive.marks()[i].at_ns;
      EXPECT_GE(received[2], times[i].received_ns);
      EXPECT_LE(received[2], times[i].received_ns + late_ns);
      EXPECT_GE(received[4], times[i].consumed_ns);
      EXPECT_LE(received[4], times[i].consumed_ns + late_ns);
    }
  }
}

TEST(ProxyOperation, CutsItsBytesIntoSteps) {
  ProxyOperation operation(true, TransferOf(3, 8), 8, {}, 2500, kChunk);
  std::vector<uint64_t> bytes;
  for (const StepMarks& step : operation.marks()) bytes.push_back(step.bytes);
  EXPECT_EQ(bytes, (std::vector<uint64_t>{1000, 1000, 500}));
}

TEST(ProxyOperation, EndsAtTheSameTimeWithoutAProfiler) {
  const std::vector<StepTimes> times = TransferOf(20, 8, {}, kMs, 6 * kMs);
  for (const bool is_send : {true, false}) {
    const Polling polling{.interval_ns = 500, .most_repeats = 10000};
    ProxyOperation seen(is_send, times, 8, polling, 20 * kChunk, kChunk);
    ProxyOperation unseen(is_send, times, 8, polling, 20 * kChunk, kChunk);
    EXPECT_NEAR(static_cast<double>(Play(seen).end_ns), static_cast<double>(unseen.RunUnseen(0)),
                1000);
  }
}

TEST(ProxyOperation, GetsStuckOnADeadWire) {
  const std::vector<StepTimes> times =
      StepsOf({.ranks = {{0, kMs}, {0, kMs}}, .hops = {{}}, .steps = 20, .stop_ns = kNever})[0];
  for (const bool is_send : {true, false}) {
    ProxyOperation operation(is_send, times, 8, {}, 20 * kChunk, kChunk);
    const Played played = Play(operation);
    EXPECT_FALSE(operation.IsDone());
    EXPECT_FALSE(played.calls.empty());
    for (const StepCall& call : played.calls) EXPECT_NE(call.kind, Kind::kStop);
  }
}

}  // namespace
}  // namespace nccl_exporter::sim
