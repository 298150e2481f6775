// SPDX-License-Identifier: Apache-2.0
// The table of proto/README.md, rule 4, as the collector applies it.
#include "collector/reader/operation_progress.h"

#include <gtest/gtest.h>

namespace nccl_exporter::collector {
namespace {

using enum OperationProgress;
using enum TimingSource;

struct Row {
  const char* name;
  TimingSource source;
  OperationParts parts;
  OperationProgress progress;
};

constexpr Row kRows[]{
    {"nothing heard yet", kKernel, {.announced = 4}, kInFlight},
    {"some parts done, the others never come",
     kKernel,
     {.announced = 4, .done = 2, .quiet_ns = 60 * kQuietNs},
     kInFlight},
    {"all done, just now", kKernel, {.announced = 4, .done = 4, .quiet_ns = kQuietNs}, kInFlight},
    {"all done, quiet", kKernel, {.announced = 4, .done = 4, .quiet_ns = kQuietNs + 1}, kComplete},
    {"no part announced, a kernel source", kKernel, {.quiet_ns = 60 * kQuietNs}, kInFlight},
    {"the same by CPU clock",
     kKernelCpu,
     {.announced = 1, .done = 1, .quiet_ns = kQuietNs + 1},
     kComplete},
    {"does not cross the network, as far as we know", kProxy, {}, kUnobservable},
    {"on the network", kProxy, {.announced = 2, .done = 1, .quiet_ns = 60 * kQuietNs}, kInFlight},
    {"all proxy operations so far done, just now",
     kProxy,
     {.announced = 2, .done = 2, .quiet_ns = 1},
     kInFlight},
    {"all proxy operations done, quiet",
     kProxy,
     {.announced = 2, .done = 2, .quiet_ns = 2 * kQuietNs},
     kComplete},
    {"untimed", kNone, {.announced = 2, .done = 1, .quiet_ns = 1}, kUnobservable},
    {"untimed, all done",
     kNone,
     {.announced = 2, .done = 2, .quiet_ns = 2 * kQuietNs},
     kUnobservable},
};

TEST(OperationProgressTest, JudgesByTheTable) {
  for (const Row& row : kRows)
    EXPECT_EQ(JudgeOperation(row.source, row.parts), row.progress) << row.name;
}

TEST(OperationProgressTest, KnowsOfCompletionBySource) {
  EXPECT_TRUE(CompletionIsKnown(kKernel, false));
  EXPECT_TRUE(CompletionIsKnown(kKernelCpu, false));
  EXPECT_FALSE(CompletionIsKnown(kProxy, false));
  EXPECT_TRUE(CompletionIsKnown(kProxy, true));
  EXPECT_FALSE(CompletionIsKnown(kNone, true));
}

}  // namespace
}  // namespace nccl_exporter::collector
