// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/answer_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kLimit = 1000;

std::string Bytes(size_t count) { return std::string(count, 'b'); }

TEST(AnswerBudgetTest, ABodyCountsUntilItsLastOwnerLetsItGo) {
  AnswerBudget budget(kLimit);
  AnswerBudget::Body first = budget.Keep(Bytes(600));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(*first, Bytes(600));
  AnswerBudget::Body shared = first;
  first.reset();
  EXPECT_GE(budget.held(), 600u);
  EXPECT_EQ(budget.Keep(Bytes(600)), nullptr);
  EXPECT_NE(budget.Keep(Bytes(200)), nullptr);
  shared.reset();
  EXPECT_EQ(budget.held(), 0u);
  EXPECT_NE(budget.Keep(Bytes(600)), nullptr);
}

TEST(AnswerBudgetTest, AnswersGiveWayOneByOneUntilThereIsRoom) {
  AnswerBudget budget(kLimit);
  std::vector<AnswerBudget::Body> sent;
  for (int i = 0; i < 3; ++i) sent.push_back(budget.Keep(Bytes(300)));
  budget.SetGiveWay([&] {
    if (sent.empty()) return false;
    sent.erase(sent.begin());
    return true;
  });
  EXPECT_NE(budget.Keep(Bytes(600)), nullptr);
  EXPECT_EQ(sent.size(), 1u);
}

TEST(AnswerBudgetTest, ABodyAboveTheLimitMakesNobodyGiveWay) {
  AnswerBudget budget(kLimit);
  const AnswerBudget::Body kept = budget.Keep(Bytes(900));
  int gave_way = 0;
  budget.SetGiveWay([&] { return ++gave_way > 0; });
  EXPECT_EQ(budget.Keep(Bytes(2 * kLimit)), nullptr);
  EXPECT_EQ(gave_way, 0);
}

TEST(AnswerBudgetTest, ABodyMayOutliveTheBudget) {
  AnswerBudget::Body kept;
  {
    AnswerBudget budget(kLimit);
    kept = budget.Keep(Bytes(10));
  }
  EXPECT_EQ(*kept, Bytes(10));
}

}  // namespace
}  // namespace nccl_exporter::exporter
