// SPDX-License-Identifier: Apache-2.0
// Tables that IsInOrder() accepts: the static_assert below each table can fail.
#include "proto/code_table.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace nccl_exporter {
namespace {

enum class Fruit : uint8_t { kApple, kPear, kPlum, kCount };
using Fruits = CodeTable<Fruit>;

TEST(CodeTable, IsInOrderWhereEachRowStandsAtThePlaceOfItsEnumerator) {
  constexpr Fruits kFruits{
      {{Fruit::kApple, "apple", ""}, {Fruit::kPear, "pear", ""}, {Fruit::kPlum, "plum", ""}}};
  static_assert(IsInOrder(kFruits));
  EXPECT_EQ(RowIn(kFruits, Fruit::kPear).name, "pear");
}

TEST(CodeTable, IsNotInOrderWhereRowsAreSwapped) {
  EXPECT_FALSE(IsInOrder(Fruits{
      {{Fruit::kApple, "apple", ""}, {Fruit::kPlum, "plum", ""}, {Fruit::kPear, "pear", ""}}}));
}

TEST(CodeTable, IsNotInOrderWhereARowIsMissing) {
  EXPECT_FALSE(IsInOrder(Fruits{{{Fruit::kApple, "apple", ""}, {Fruit::kPear, "pear", ""}}}));
}

}  // namespace
}  // namespace nccl_exporter
