// SPDX-License-Identifier: Apache-2.0
// The counter of this machine, and readings that are made up. What an operation sums up by the
// counter lies between what CLOCK_MONOTONIC shows before and after its calls.
#include "plugin/network/counter_clock.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "plugin/network/network_operation.h"

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kOneCountANs = uint64_t{1} << 32;
constexpr uint64_t kInterval = CounterClock::kInterval;

CounterClock::Reading After(const CounterClock::Reading& reading, uint64_t counts, uint64_t ns) {
  return {reading.count + counts, reading.ns + ns};
}

class Measured : public testing::Test {
 protected:
  // Of a counter that counts twice in a nanosecond.
  void TakeAfter(uint64_t counts, uint64_t more_ns = 0) {
    reading_ = After(reading_, counts, counts / 2 + more_ns);
    clock_.Take(reading_);
  }
  void LearnRate() {
    clock_.Take(reading_);
    for (int i = 0; i < 3; ++i) TakeAfter(kInterval);
    ASSERT_EQ(clock_.Rate(), kOneCountANs / 2);
  }
  // By a reading that disagrees; two that agree end that.
  void ExpectUnknownAfter(uint64_t counts, uint64_t ns) {
    const uint64_t era = clock_.Era();
    reading_ = After(reading_, counts, ns);
    clock_.Take(reading_);
    EXPECT_EQ(clock_.Rate(), 0u);
    EXPECT_NE(clock_.Era(), era);
    TakeAfter(kInterval);
    EXPECT_EQ(clock_.Rate(), 0u);
    TakeAfter(kInterval);
    EXPECT_EQ(clock_.Rate(), kOneCountANs / 2);
  }

  CounterClock clock_{};
  CounterClock::Reading reading_{1'000'000'000'000, 5'000'000'000};
};

TEST_F(Measured, IsKnownOnceTwoMeasurementsAgree) {
  clock_.Take(reading_);
  EXPECT_EQ(clock_.Rate(), 0u);
  TakeAfter(kInterval);
  EXPECT_EQ(clock_.Rate(), 0u);
  TakeAfter(100 * kInterval);
  EXPECT_EQ(clock_.Rate(), kOneCountANs / 2);
}

TEST_F(Measured, IsUnknownForTwoMeasurementsAfterAReadingThatWasInterrupted) {
  LearnRate();
  ExpectUnknownAfter(kInterval, kInterval / 2 + kInterval / 100);
}

TEST_F(Measured, FollowsAClockThatIsSlewed) {
  LearnRate();
  const uint64_t era = clock_.Era();
  TakeAfter(kInterval, kInterval / 2 / 10'000);
  EXPECT_NEAR(static_cast<double>(clock_.Rate()), kOneCountANs / 2 * 1.0001, 100.0);
  EXPECT_EQ(clock_.Era(), era);
}

// A machine that was suspended, or moved to another host.
TEST_F(Measured, BeginsAnotherEraAfterACounterThatJumped) {
  LearnRate();
  ExpectUnknownAfter(uint64_t{0} - 900'000'000'000, 1000);
  ExpectUnknownAfter(900'000'000'000, 1000);
}

TEST_F(Measured, TakesNoReadingThatAnotherThreadWasFasterThan) {
  LearnRate();
  const uint64_t era = clock_.Era();
  for (const int64_t counts : {-1000, 0, 1000}) {
    clock_.Take({reading_.count + static_cast<uint64_t>(counts), reading_.ns + 1'000'000});
    EXPECT_EQ(clock_.Rate(), kOneCountANs / 2);
    EXPECT_EQ(clock_.Era(), era);
  }
}

TEST(CounterClock, TurnsCountsOfDaysIntoNanoseconds) {
  constexpr uint64_t kThreeGigahertz = kOneCountANs / 3;
  constexpr uint64_t kWeekNs = 7 * 86'400'000'000'000;
  EXPECT_NEAR(static_cast<double>(CounterClock::ToNs(3 * kWeekNs, kThreeGigahertz)), kWeekNs,
              kWeekNs / 1e9);
  EXPECT_EQ(CounterClock::ToNs(0, kThreeGigahertz), 0u);
}

TEST(CounterClock, IsUsedOnlyIfTheKernelKeepsItsTimeByIt) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "clock_source";
  const auto is_used_with = [&](const char* source) {
    std::ofstream(file) << source;
    return CounterClock::KernelKeepsTimeByIt(file.c_str());
  };
#if defined(__x86_64__)
  EXPECT_TRUE(is_used_with("tsc\n"));
  EXPECT_TRUE(is_used_with("hyperv_clocksource_tsc_page\n"));
#else
  EXPECT_TRUE(is_used_with("arch_sys_counter\n"));
#endif
  for (const char* source :
       {"", "\n", "hpet\n", "acpi_pm\n", "kvm-clock\n", "xen\n", "tsc-early\n"})
    EXPECT_FALSE(is_used_with(source)) << source;
  EXPECT_FALSE(is_used_with(std::string(1000, 't').c_str()));
  EXPECT_FALSE(CounterClock::KernelKeepsTimeByIt("/nowhere"));
}

void PassIntervals(CounterClock& clock, uint64_t intervals) {
  for (const uint64_t begin = CounterClock::Count();
       CounterClock::Count() - begin < intervals * kInterval + kInterval / 2;)
    clock.MeasureIfDue();
}

// By this machine's counter: 11 s an interval on the slowest.
class WithCounter : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    clock_.Open(true);
    PassIntervals(clock_, 2);
  }
  void SetUp() override {
#if defined(__x86_64__)
    if (!CounterClock::KernelKeepsTimeByIt()) GTEST_SKIP() << "the kernel keeps time by another";
#endif
    ASSERT_NE(clock_.Rate(), 0u);
  }
  static void Wait(uint64_t ns) {
    for (const uint64_t until_ns = NowNs() + ns; NowNs() < until_ns;) continue;
  }

  static inline CounterClock clock_{};
};

// When a call was made, at the earliest and at the latest.
struct Bracket {
  uint64_t from_ns, until_ns;
};

template <typename Call>
Bracket At(Call call) {
  const uint64_t from_ns = NowNs();
  call();
  return {from_ns, NowNs()};
}

TEST_F(WithCounter, AnOperationSumsUpWhatTheClockShows) {
  constexpr uint32_t kSteps = 2000;
  constexpr size_t kPhases = 4;
  constexpr NetworkState kStates[kPhases]{NetworkState::kPeer, NetworkState::kNetwork,
                                          NetworkState::kFlush, NetworkState::kGpu};
  std::mt19937 random(1);
  NetworkOperation operation;
  operation.Begin(false, clock_.Rate());
  std::vector<Bracket> changes;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const uint32_t place = NetworkOperation::PlaceOf(step), tag = NetworkOperation::TagOf(step);
    changes.push_back(At([&] { operation.StartStep(step); }));
    operation.StartStep(step);
    for (uint32_t phase = step_phase::kRecvNetwork; phase <= step_phase::kRecvGpu; ++phase) {
      Wait(random() % 4000);
      changes.push_back(At([&] { operation.Enter(place, tag, phase); }));
    }
    Wait(random() % 4000);
    changes.push_back(At([&] { operation.StopStep(place, tag); }));
  }
  ASSERT_FALSE(operation.IsBroken());
  const NetworkTimes times = operation.Times(false);

  constexpr double kRateIsOff = 1e-3;  // NTP may slew the clock meanwhile
  constexpr double kTogetherNs = 20;   // a counter may be read that much before its turn
  uint64_t sum = 0;
  for (size_t i = 0; i < kPhases; ++i) {
    double least = 0, most = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      const Bracket* const change = &changes[step * (kPhases + 1) + i];
      // The time between two steps is the later one's.
      const Bracket& begin = i == 0 && step > 0 ? change[-1] : change[0];
      least += static_cast<double>(static_cast<int64_t>(change[1].from_ns - begin.until_ns));
      most += static_cast<double>(change[1].until_ns - begin.from_ns);
    }
    const auto ns = static_cast<double>(times.state_ns[static_cast<size_t>(kStates[i])]);
    EXPECT_GE(ns, least * (1 - kRateIsOff) - kTogetherNs * kSteps) << "phase " << i;
    EXPECT_LE(ns, most * (1 + kRateIsOff) + kTogetherNs * kSteps) << "phase " << i;
    sum += times.state_ns[static_cast<size_t>(kStates[i])];
  }
  const auto whole = static_cast<double>(sum);
  const Bracket &first = changes.front(), &last = changes.back();
  EXPECT_GE(whole * (1 + kRateIsOff) + 1000, static_cast<double>(last.from_ns - first.until_ns));
  EXPECT_LE(whole * (1 - kRateIsOff) - 1000, static_cast<double>(last.until_ns - first.from_ns));
}

TEST_F(WithCounter, KeepsItsRateWhileItMeasuresOn) {
  const auto rate = static_cast<double>(clock_.Rate());
  PassIntervals(clock_, 1);
  EXPECT_NEAR(static_cast<double>(clock_.Rate()), rate, rate / 1000);
}

TEST_F(WithCounter, HasNoRateIfItIsNotUsed) {
  CounterClock unused{};
  unused.Open(false);
  PassIntervals(unused, 2);
  EXPECT_EQ(unused.Rate(), 0u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
