// SPDX-License-Identifier: Apache-2.0
// Compression and back.
#include "exporter/gzip.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "exporter/gunzip.h"

namespace nccl_exporter {
namespace {

TEST(GzipTest, GivesTheTextBack) {
  std::mt19937 random(1);
  std::string incompressible(1 << 20, '\0');
  for (char& character : incompressible) character = static_cast<char>(random());
  for (const std::string& text : {std::string("a"), std::string(1 << 20, 'a'), incompressible}) {
    EXPECT_TRUE(Gunzip(Gzip(text)) == text) << text.size();
  }
}

TEST(GzipTest, CompressesNothingToAWholeMember) {
  EXPECT_FALSE(Gzip("").empty());
  EXPECT_EQ(Gunzip(Gzip("")), "");
}

}  // namespace
}  // namespace nccl_exporter
