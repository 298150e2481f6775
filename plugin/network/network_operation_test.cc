// SPDX-License-Identifier: Apache-2.0
// A proxy operation is played as NCCL's progress thread plays it, poll by poll, with random times.
// What each state has is computed from the moments of the steps, in another way than the plugin
// does: nanosecond by nanosecond.
#include "plugin/network/network_operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "plugin/testing/scripted_clock.h"

namespace nccl_exporter::plugin {
namespace {

using Times = std::array<uint64_t, kNetworkStateCount>;

constexpr size_t At(NetworkState state) { return static_cast<size_t>(state); }

// Moments of a step in the direction's order: start, then the begin of each further phase, the end.
struct Moments {
  std::vector<uint64_t> ns;
};

// Times by the state of the oldest step that has not ended, in each poll's interval between two
// events.
Times TrueTimes(bool is_send, const std::vector<Moments>& steps) {
  const std::vector<NetworkState> order =
      is_send ? std::vector{NetworkState::kGpu, NetworkState::kPeer, NetworkState::kNetwork}
              : std::vector{NetworkState::kPeer, NetworkState::kNetwork, NetworkState::kFlush,
                            NetworkState::kGpu};
  std::vector<uint64_t> borders;
  for (const Moments& step : steps) borders.insert(borders.end(), step.ns.begin(), step.ns.end());
  std::sort(borders.begin(), borders.end());
  Times times{};
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const uint64_t from = borders[i], until = borders[i + 1];
    const auto head = std::find_if(steps.begin(), steps.end(),
                                   [&](const Moments& step) { return step.ns.back() >= until; });
    size_t phase = 0;
    // Between two steps it is the first state of the next one that has a length.
    const uint64_t at = std::max(from, head->ns.front());
    while (phase + 1 < order.size() && head->ns[phase + 1] <= at) ++phase;
    times[At(order[phase])] += until - from;
  }
  return times;
}

// One direction of a channel: the order of events is NCCL's, their times are drawn.
class Progress {
 public:
  Progress(bool is_send, int overlap, int steps, uint32_t seed)
      : is_send_(is_send), overlap_(overlap), moments_(static_cast<size_t>(steps)), random_(seed) {
    operation_.Begin(is_send);
  }

  void Run() {
    while (done_ < moments_.size()) {
      ScriptedClock::now_ns += kPollNs;
      is_send_ ? Send() : Receive();
    }
  }
  const NetworkOperation& operation() const { return operation_; }
  const std::vector<Moments>& moments() const { return moments_; }
  static constexpr uint64_t kPollNs = 700;

 private:
  static uint32_t Place(size_t step) {
    return NetworkOperation::PlaceOf(static_cast<uint32_t>(step));
  }
  static uint32_t Tag(size_t step) { return NetworkOperation::TagOf(static_cast<uint32_t>(step)); }
  bool Happens() { return random_() % 4 == 0; }
  bool MayPost() const {
    return begun_ < moments_.size() && begun_ < done_ + static_cast<size_t>(overlap_);
  }
  void Mark(size_t step) { moments_[step].ns.push_back(ScriptedClock::now_ns); }
  void Start(size_t step) {
    EXPECT_TRUE(operation_.StartStep(static_cast<uint32_t>(step)));
    if (moments_[step].ns.empty()) Mark(step);
  }
  void Enter(size_t step, uint32_t phase) {
    EXPECT_TRUE(operation_.Enter(Place(step), Tag(step), phase));
    if (moments_[step].ns.size() < phase) Mark(step);
  }
  void Stop() {
    EXPECT_TRUE(operation_.StopStep(Place(done_), Tag(done_)));
    Mark(done_++);
  }

  void Send() {
    if (MayPost()) return Start(begun_++);
    if (taken_ < begun_ && (moments_[taken_].ns.size() > 1 || Happens())) {
      Enter(taken_, step_phase::kSendPeer);
      if (!Happens()) return;
      return Enter(taken_++, step_phase::kSendNetwork);
    }
    if (done_ < taken_ && Happens()) Stop();
  }
  void Receive() {
    if (MayPost()) {
      Start(begun_);
      if (Happens()) return Enter(begun_++, step_phase::kRecvNetwork);
    }
    if (taken_ < begun_ && Happens()) return Enter(taken_++, step_phase::kRecvFlush);
    if (flushed_ < taken_ && Happens()) return Enter(flushed_++, step_phase::kRecvGpu);
    while (done_ < flushed_ && Happens()) Stop();
  }

  const bool is_send_;
  const int overlap_;
  std::vector<Moments> moments_;
  std::mt19937 random_;
  NetworkOperation operation_;
  size_t begun_ = 0, taken_ = 0, flushed_ = 0, done_ = 0;
};

TEST(NetworkOperation, SharesOutItsTimeExactlyWhateverTheOverlap) {
  for (const bool is_send : {true, false}) {
    for (const int overlap : {1, 2, 4, 8}) {
      for (uint32_t seed = 0; seed < 20; ++seed) {
        Progress progress(is_send, overlap, 200, seed);
        progress.Run();
        const std::vector<Moments>& steps = progress.moments();
        const Times times = progress.operation().Times().state_ns;
        Times truth = TrueTimes(is_send, steps);
        EXPECT_EQ(times, truth) << "send " << is_send << ", overlap " << overlap;
        uint64_t sum = 0;
        for (const uint64_t time : times) sum += time;
        EXPECT_EQ(sum, steps.back().ns.back() - steps.front().ns.front());
        EXPECT_FALSE(progress.operation().IsUnderWay());
        EXPECT_FALSE(progress.operation().IsBroken());
      }
    }
  }
}

void Advance(uint64_t ns) { ScriptedClock::now_ns += ns; }

TEST(NetworkOperation, ReadsNoClockForStatesThatAreRepeated) {
  NetworkOperation send, receive;
  send.Begin(true);
  send.StartStep(0);
  Advance(100);
  send.Enter(0, 0, step_phase::kSendPeer);
  receive.Begin(false);
  receive.StartStep(0);
  const uint64_t before = ScriptedClock::readings;
  for (int i = 0; i < 10'000; ++i) {
    Advance(10);
    EXPECT_TRUE(receive.StartStep(0));
    EXPECT_TRUE(send.Enter(0, 0, step_phase::kSendPeer));
  }
  EXPECT_EQ(ScriptedClock::readings, before);
  send.Enter(0, 0, step_phase::kSendNetwork);
  receive.Enter(0, 0, step_phase::kRecvNetwork);
  EXPECT_EQ(send.Times().state_ns[At(NetworkState::kGpu)], 100u);
  EXPECT_EQ(send.Times().state_ns[At(NetworkState::kPeer)], 100'000u);
  EXPECT_EQ(receive.Times().state_ns[At(NetworkState::kPeer)], 100'000u);
}

TEST(NetworkOperation, ReadsTheClockOnceForAStepThatIsNotTheOldestUntilItEnds) {
  NetworkOperation operation;
  operation.Begin(true);
  for (uint32_t step = 0; step < 8; ++step) operation.StartStep(step);
  const uint64_t before = ScriptedClock::readings;
  for (uint32_t step = 1; step < 8; ++step) {
    operation.Enter(step, 0, step_phase::kSendPeer);
    operation.Enter(step, 0, step_phase::kSendNetwork);
  }
  EXPECT_EQ(ScriptedClock::readings, before);
}

TEST(NetworkOperation, TakesTheStepsOfOtherOrderForNone) {
  const auto is_broken_after = [](auto play) {
    NetworkOperation operation;
    operation.Begin(true);
    play(operation);
    return operation.IsBroken();
  };
  EXPECT_TRUE(is_broken_after([](NetworkOperation& o) { o.StartStep(1); })) << "the first missed";
  EXPECT_TRUE(is_broken_after([](NetworkOperation& o) {
    o.StartStep(0);
    o.StartStep(2);
  })) << "a start missed";
  EXPECT_TRUE(is_broken_after([](NetworkOperation& o) {
    o.StartStep(0);
    o.StartStep(1);
    o.StopStep(1, 0);
  })) << "a stop missed";
  EXPECT_TRUE(is_broken_after([](NetworkOperation& o) {
    for (uint32_t step = 0; step < 9; ++step) o.StartStep(step);
  })) << "nine at a time";
  EXPECT_TRUE(is_broken_after([](NetworkOperation& o) {
    o.StartStep(0);
    o.Enter(0, 0, step_phase::kSendNetwork);
    o.StartStep(0);
  })) << "started again after it went on";
}

TEST(NetworkOperation, RefusesStepsThatAreNotUnderWay) {
  NetworkOperation operation;
  operation.Begin(true);
  EXPECT_FALSE(operation.StopStep(0, 0));
  EXPECT_FALSE(operation.Enter(0, 0, step_phase::kSendPeer));
  operation.StartStep(0);
  EXPECT_FALSE(operation.Enter(0, 1, step_phase::kSendPeer)) << "of eight steps before or later";
  EXPECT_TRUE(operation.StopStep(0, 0));
  EXPECT_FALSE(operation.StopStep(0, 0));
  EXPECT_FALSE(operation.IsBroken());
}

// 300 steps, of which up to 8 end in one poll, and only the first is stopped.
TEST(NetworkOperation, EndsTheStepsThatNcclUpTo226DoesNotStop) {
  NetworkOperation operation;
  operation.Begin(false);
  const uint64_t begin_ns = ScriptedClock::now_ns;
  uint32_t done = 0;
  for (uint32_t poll = 0; done < 300; ++poll) {
    const uint32_t ending = std::min(1 + poll % NetworkOperation::kSteps, 300 - done);
    for (uint32_t step = done; step < done + ending; ++step) {
      ASSERT_TRUE(operation.StartStep(step));
      operation.Enter(NetworkOperation::PlaceOf(step), NetworkOperation::TagOf(step),
                      step_phase::kRecvGpu);
    }
    Advance(100);
    EXPECT_TRUE(operation.StopStep(NetworkOperation::PlaceOf(done), NetworkOperation::TagOf(done)));
    for (uint32_t i = 0; i < ending; ++i) operation.StopStepsBefore(++done);
    EXPECT_FALSE(operation.IsUnderWay());
  }
  operation.StopStepsBefore(0);
  operation.StopStepsBefore(done);
  EXPECT_FALSE(operation.IsBroken());
  const Times times = operation.Times().state_ns;
  EXPECT_EQ(times[At(NetworkState::kGpu)], ScriptedClock::now_ns - begin_ns);
}

TEST(NetworkOperation, EndsNoStepThatIsNotOver) {
  NetworkOperation operation;
  operation.Begin(false);
  for (uint32_t step = 0; step < 8; ++step) operation.StartStep(step);
  operation.StopStepsBefore(3);
  operation.StopStepsBefore(2);
  operation.StopStepsBefore(100);  // further than there can be steps
  for (uint32_t step = 3; step < 8; ++step) EXPECT_TRUE(operation.StopStep(step, 0)) << step;
  EXPECT_FALSE(operation.IsBroken());
}

TEST(NetworkOperation, CountsBytesFromASumThatNothingSetsToZero) {
  NetworkOperation operation;
  operation.Begin(true);
  for (const uint64_t sum : {4242u, 4242u, 5242u, 6242u}) operation.NoteSumOfBytes(sum);
  EXPECT_EQ(operation.Times().bytes, 2000u);
  EXPECT_FALSE(operation.IsBroken());
  operation.NoteSumOfBytes(4241);
  EXPECT_TRUE(operation.IsBroken()) << "the sum of another operation";
}

}  // namespace
}  // namespace nccl_exporter::plugin
