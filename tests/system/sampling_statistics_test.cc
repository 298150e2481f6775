// SPDX-License-Identifier: Apache-2.0
// Histograms and means of sampled operations against those of all operations: workloads with ground
// truth, timed by the plugin's sampler at the default windows for six hours of simulated time.
// Seeds are fixed, so that a result is one.
//
// The band: operations in one window resemble each other, so that what counts is the number W of
// windows in which something ran. The sampled q-quantile lies between the true (q - b)- and (q +
// b)-quantile, b = 3 sqrt(q (1 - q) / W).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plugin/sampling/sampler.h"

namespace nccl_exporter {
namespace {

constexpr double kLengthS = 6 * 3600;
constexpr uint64_t kStartNs = 1'700'000'000'000'000'000;  // some day, by the wall clock
constexpr int kTimedMask = 2 | 4 | 64;

struct Operation {
  double called_s;  // since the start
  double duration_us;
  bool is_timed = false;
};
using Operations = std::vector<Operation>;

// A rank with a sampler of its own; its wall clock is ahead by `ahead_ns`.
class Rank {
 public:
  explicit Rank(uint64_t ahead_ns = 0)
      : ahead_ns_(ahead_ns),
        sampler_(static_cast<plugin::Sampler*>(std::calloc(1, sizeof(plugin::Sampler))),
                 std::free) {
    sampler_->Open(&mask_, kTimedMask, {}, 0, 0);
  }
  // Makes the call, as NCCL and the process do: the mask as it is, then what the end of the group
  // changes.
  bool Times(double called_s) {
    const bool is_timed = sampler_->TimesNow();
    const auto since_start_ns = static_cast<uint64_t>(called_s * 1e9);
    if (sampler_->IsDue(since_start_ns) && sampler_->BeginChange()) {
      sampler_->EndChange(false, {since_start_ns, kStartNs + ahead_ns_ + since_start_ns});
      windows_ += sampler_->TimesNow() && !is_timed ? 1 : 0;
    }
    return is_timed;
  }
  double windows() const { return windows_; }

 private:
  uint64_t ahead_ns_;
  int mask_ = 0;
  std::unique_ptr<plugin::Sampler, decltype(&std::free)> sampler_;
  double windows_ = 0;
};

// Durations scatter around their mean by a fifth.
double Scattered(std::minstd_rand& random, double mean_us) {
  return mean_us * std::lognormal_distribution<double>(-0.02, 0.2)(random);
}

Operations Stationary() {
  std::minstd_rand random(1);
  Operations operations;
  for (double now_s = 0; now_s < kLengthS; now_s += 0.01)
    operations.push_back({now_s, Scattered(random, 300)});
  return operations;
}

// Bursts of 200 operations, of half a second to six seconds one after the other; those late in a
// burst take longer.
Operations Bursty() {
  std::minstd_rand random(2);
  std::exponential_distribution<double> pause(1 / 1.5);
  Operations operations;
  for (double now_s = 0; now_s < kLengthS; now_s += 0.5 + std::min(pause(random), 5.5)) {
    for (int i = 0; i < 200; ++i, now_s += 0.002)
      operations.push_back({now_s, Scattered(random, 200 + i)});
  }
  return operations;
}

// Steps of equal length, in which operations differ by their place in the step by up to a half.
Operations StepPeriodic(double period_s) {
  std::minstd_rand random(3);
  const int calls = std::clamp(static_cast<int>(period_s * 50), 10, 1000);
  Operations operations;
  for (double step_s = 0; step_s < kLengthS; step_s += period_s) {
    for (int i = 0; i < calls; ++i) {
      const double place = static_cast<double>(i) / calls;
      operations.push_back(
          {step_s + 0.9 * place * period_s, Scattered(random, 200 * (1 + 0.5 * place))});
    }
  }
  return operations;
}

Operations Drifting() {
  std::minstd_rand random(4);
  Operations operations;
  for (double now_s = 0; now_s < kLengthS; now_s += 0.01) {
    operations.push_back({now_s, Scattered(random, 300 * (1 + 0.3 * now_s / kLengthS))});
  }
  return operations;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double Quantile(const std::vector<double>& sorted, double q) {
  const double place = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(place)];
}

void ExpectTold(const std::string& workload, Operations operations) {
  SCOPED_TRACE(workload);
  Rank rank;
  for (Operation& operation : operations) operation.is_timed = rank.Times(operation.called_s);
  std::vector<double> all, timed;
  for (const Operation& operation : operations) {
    all.push_back(operation.duration_us);
    if (operation.is_timed) timed.push_back(operation.duration_us);
  }
  std::sort(all.begin(), all.end());
  std::sort(timed.begin(), timed.end());
  const double share = static_cast<double>(timed.size()) / static_cast<double>(all.size());
  EXPECT_NEAR(share, 0.1, 0.01);
  EXPECT_NEAR(Mean(timed) / Mean(all), 1, 0.01);
  for (const double q : {0.1, 0.5, 0.9, 0.99}) {
    const double band = 3 * std::sqrt(q * (1 - q) / rank.windows());
    EXPECT_GE(Quantile(timed, q), Quantile(all, q - band)) << q;
    EXPECT_LE(Quantile(timed, q), Quantile(all, q + band)) << q;
  }
}

TEST(SampledHistograms, TellQuantilesAndMeansOfAStationaryWorkload) {
  ExpectTold("stationary", Stationary());
}
TEST(SampledHistograms, TellQuantilesAndMeansOfABurstyWorkload) { ExpectTold("bursty", Bursty()); }
TEST(SampledHistograms, TellQuantilesAndMeansOfADriftingWorkload) {
  ExpectTold("drifting", Drifting());
}
TEST(SampledHistograms, TellQuantilesAndMeansWhateverTheLengthOfAStep) {
  for (const double period_s : {0.1, 0.2, 0.5, 1.0, 1.9, 2.0, 2.1, 4.0, 7.0, 10.0, 20.0, 30.0}) {
    ExpectTold("steps of " + std::to_string(period_s) + " s", StepPeriodic(period_s));
  }
}

TEST(SampledMeans, DifferBetweenRanksAsTheRanksDo) {
  Operations operations = StepPeriodic(2.0);
  Rank fast, slow(5'000'000);
  std::vector<double> fast_us, slow_us;
  for (const Operation& operation : operations) {
    if (fast.Times(operation.called_s)) fast_us.push_back(operation.duration_us);
    if (slow.Times(operation.called_s + 0.0002))
      slow_us.push_back(0.9 * operation.duration_us);  // the others wait for it
  }
  EXPECT_NEAR(Mean(slow_us) / Mean(fast_us), 0.9, 0.01);
}

TEST(Ranks, TimeTheSameOperationsWithClocks20MsApart) {
  std::minstd_rand random(5);
  std::uniform_real_distribution<double> lag_s(0, 0.002);  // between the calls of two ranks
  Rank here, there(20'000'000);
  double timed_here = 0, timed_there = 0, timed_by_both = 0;
  for (double now_s = 0; now_s < kLengthS; now_s += 0.004) {
    const bool is_timed_here = here.Times(now_s);
    const bool is_timed_there = there.Times(now_s + lag_s(random));
    timed_here += is_timed_here ? 1 : 0;
    timed_there += is_timed_there ? 1 : 0;
    timed_by_both += is_timed_here && is_timed_there ? 1 : 0;
  }
  EXPECT_GT(timed_by_both / timed_here, 0.8);
  EXPECT_GT(timed_by_both / timed_there, 0.8);
}

}  // namespace
}  // namespace nccl_exporter
