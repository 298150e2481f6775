// SPDX-License-Identifier: Apache-2.0
// Slips of the keyboard, and texts that are no slip.
#include "exporter/text/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace nccl_exporter::exporter {
namespace {

constexpr std::array<std::string_view, 4> kNames{"top", "inflight", "--help",
                                                 "--web.listen-address"};

TEST(LikelyNameTest, IsThatOfASlip) {
  EXPECT_EQ(LikelyName("tpo", kNames), "top");
  EXPECT_EQ(LikelyName("--hlep", kNames), "--help");
  EXPECT_EQ(LikelyName("in-flight", kNames), "inflight");
  EXPECT_EQ(LikelyName("--web.lisen-adress", kNames), "--web.listen-address");
}

TEST(LikelyNameTest, IsThatOfABeginning) {
  EXPECT_EQ(LikelyName("--web.listen", kNames), "--web.listen-address");
  EXPECT_EQ(LikelyName("inf", kNames), "inflight");
}

TEST(LikelyNameTest, IsNoneWhereTooMuchDiffers) {
  EXPECT_EQ(LikelyName("nonsense", kNames), "");
  EXPECT_EQ(LikelyName("tip", kNames), "top");
  EXPECT_EQ(LikelyName("tin", kNames), "") << "two of three letters, not swapped";
  EXPECT_EQ(LikelyName("x", kNames), "");
  EXPECT_EQ(LikelyName("", kNames), "");
  EXPECT_EQ(LikelyName("top", {}), "");
}

TEST(EditDistanceTest, CountsChanges) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", "abc"), 0u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
