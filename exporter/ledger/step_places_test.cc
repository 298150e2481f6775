// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/step_places.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint8_t kClass = 7;
constexpr uint8_t kOtherClass = 9;

OperationKind KeyOf(Function function, uint8_t size_class = kClass) {
  return {function, size_class};
}
// That the places have learned, as from a minute of steps.
void Learn(StepPlaces& places, uint64_t per_step, Function function = Function::kAllGather) {
  const uint64_t steps = 2 * per_step + 10;
  places.Learn(function, per_step * steps, steps);
}

// Completions of a communicator, in snapshots 5 s apart.
class Played {
 public:
  // `members` operations of one launch.
  void Launch(uint64_t launch_ns, uint64_t members = 1, Function function = Function::kAllGather,
              uint8_t size_class = kClass) {
    for (uint64_t i = 0; i < members; ++i) {
      recent_.push_back({.function = function,
                         .size_class = size_class,
                         .sequence = sequences_[function]++,
                         .launch_ns = launch_ns,
                         .members = members});
    }
  }
  void Skip(uint64_t operations, Function function = Function::kAllGather) {
    sequences_[function] += operations;
  }
  void See(StepPlaces& places) {
    places.See(recent_, std::exp(-0.5));
    recent_.clear();
  }

 private:
  std::map<Function, uint64_t> sequences_;
  std::vector<collector::RecentOperation> recent_;
};

TEST(StepPlacesTest, OneOperationPerStepIsItsOwnMean) {
  StepPlaces places;
  EXPECT_EQ(places.LongestToMean(KeyOf(Function::kAllGather)), 1);
  Played played;
  for (int i = 0; i < 20; ++i) played.Launch((10 + i % 2) * kMs);
  Learn(places, 1);
  played.See(places);
  EXPECT_DOUBLE_EQ(places.LongestToMean(KeyOf(Function::kAllGather)), 1);
  EXPECT_EQ(places.LongestToMean(KeyOf(Function::kReduceScatter)), 1);
}

// A step of sharded data parallelism: the first group waits for the late rank. Each of its four
// operations has a quarter of the 60 ms.
TEST(StepPlacesTest, TheLongestGroupOfAStepCountsWhole) {
  StepPlaces places;
  Played played;
  for (int step = 0; step < 20; ++step) {
    played.Launch(60 * kMs, 4);
    played.Launch(25 * kMs, 2);
    played.Launch(25 * kMs, 2);
  }
  Learn(places, 8);
  played.See(places);
  const double mean_ms = (4 * 15 + 4 * 12.5) / 8;
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllGather)), 60 / mean_ms, 1e-9);
}

TEST(StepPlacesTest, WithoutTheirNumberPerStepGroupsCountWhole) {
  StepPlaces places;
  Played played;
  for (int step = 0; step < 20; ++step) played.Launch(60 * kMs, 4);
  played.See(places);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllGather)), 4, 1e-9);
}

// Sizes have the numbers of their function in common.
TEST(StepPlacesTest, SizesAreKeptApart) {
  StepPlaces places;
  Played played;
  for (int step = 0; step < 20; ++step) {
    played.Launch(40 * kMs, 1, Function::kAllReduce, kClass);
    played.Launch(90 * kMs, 1, Function::kAllReduce, kOtherClass);
    played.Launch(20 * kMs, 1, Function::kAllReduce, kClass);
  }
  Learn(places, 3, Function::kAllReduce);
  played.See(places);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllReduce)), 40.0 / 30, 1e-9);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllReduce, kOtherClass)), 1, 1e-9);
}

// A ring that is overrun shows steps in parts, which begin anywhere.
TEST(StepPlacesTest, PlacesAreKnownInWindows) {
  StepPlaces places;
  Played played;
  for (int window = 0; window < 24; ++window) {
    for (int i = 0; i < 4; ++i) {  // of steps of 8 operations
      const int at = (window * 3 + i) % 8;
      played.Launch(at == 2 ? 70 * kMs : 10 * kMs);
    }
    played.Skip(8 * 9 + 7);  // the next window begins three places later
  }
  Learn(places, 8);
  played.See(places);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllGather)), 70 / 17.5, 1e-9);
}

// A step has the same number of operations, and an evaluation comes between two of them.
TEST(StepPlacesTest, OperationsBetweenStepsAreForgottenWithinAMinute) {
  StepPlaces places;
  Played played;
  const auto run = [&](int snapshots) {
    for (int snapshot = 0; snapshot < snapshots; ++snapshot) {
      for (int step = 0; step < 25; ++step) {
        played.Launch(70 * kMs);
        for (int i = 0; i < 3; ++i) played.Launch(10 * kMs);
      }
      Learn(places, 4);
      played.See(places);
    }
  };
  run(12);
  const double factor = places.LongestToMean(KeyOf(Function::kAllGather));
  EXPECT_NEAR(factor, 70.0 / 25, 1e-9);
  played.Launch(500 * kMs);
  run(12);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllGather)), factor, 0.02 * factor);
}

TEST(StepPlacesTest, AnotherNumberPerStepForgetsThePlaces) {
  StepPlaces places;
  Played played;
  const auto run = [&](uint64_t longest_ms, uint64_t per_step) {
    for (int i = 0; i < 96; ++i) played.Launch(i % 4 == 0 ? longest_ms * kMs : 10 * kMs);
    Learn(places, per_step);
    played.See(places);
  };
  run(70, 4);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllGather)), 70.0 / 25, 1e-9);
  run(10, 3);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllGather)), 1, 1e-9);
}

// A step with more operations than a ring can show twice is one place.
TEST(StepPlacesTest, MoreThanTheMostPlacesAreOne) {
  StepPlaces places;
  Played played;
  for (int i = 0; i < 300; ++i) played.Launch(i == 0 ? 70 * kMs : 10 * kMs);
  Learn(places, StepPlaces::kMostPlaces + 1);
  played.See(places);
  EXPECT_NEAR(places.LongestToMean(KeyOf(Function::kAllGather)), 1, 1e-9);
}

TEST(StepPlacesTest, TheNumberPerStepIsExactOrUnknown) {
  const auto learned = [](uint64_t operations, uint64_t steps) {
    StepPlaces places;
    places.Learn(Function::kAllGather, operations, steps);
    return places.PlacesOf(Function::kAllGather);
  };
  for (uint64_t per_step = 1; per_step <= 40; ++per_step) {
    for (uint64_t steps = 2 * per_step + 3; steps < 400; steps += 17) {
      for (const int64_t off : {-1, 0, 1}) {  // parts of a step at both ends
        const uint64_t operations =
            per_step * steps + static_cast<uint64_t>(off * static_cast<int64_t>(per_step));
        EXPECT_EQ(learned(operations, steps), per_step) << operations << " " << steps;
      }
    }
  }
  EXPECT_EQ(learned(0, 100), 1u);
  EXPECT_EQ(learned(100, 0), 1u);
  EXPECT_EQ(learned(850, 100), 1u) << "half of the steps have one more";
  EXPECT_EQ(learned(240, 4), 1u) << "45 to 75";
}

TEST(StepPlacesTest, WhatWasLearnedStaysUntilThereIsAnotherNumber) {
  StepPlaces places;
  constexpr Function kFunction = Function::kAllGather;
  places.Learn(kFunction, 800, 100);
  places.Learn(kFunction, 850, 100);
  EXPECT_EQ(places.PlacesOf(kFunction), 8u);
  places.Learn(kFunction, 900, 100);
  EXPECT_EQ(places.PlacesOf(kFunction), 9u);
}

// A forged segment.
TEST(StepPlacesTest, AnyNumbersAreHarmless) {
  StepPlaces places;
  const uint64_t most = ~uint64_t{0};
  const std::vector<collector::RecentOperation> recent{{.function = Function::kAllGather,
                                                        .size_class = kClass,
                                                        .sequence = most,
                                                        .launch_ns = most,
                                                        .members = most},
                                                       {.function = Function::kAllGather,
                                                        .size_class = kClass,
                                                        .sequence = 0,
                                                        .launch_ns = 0,
                                                        .members = 1}};
  places.Learn(Function::kAllGather, most, 3);
  for (int i = 0; i < 3000; ++i) places.See(recent, std::exp(-0.5));
  EXPECT_GE(places.LongestToMean(KeyOf(Function::kAllGather)), 1);
}

}  // namespace
}  // namespace nccl_exporter::exporter
