// SPDX-License-Identifier: Apache-2.0
// Compression and back.
#include "exporter/exposition/gzip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "exporter/testing/gunzip.h"

namespace nccl_exporter::exporter {
namespace {

TEST(GzipTest, GivesTheTextBack) {
  std::mt19937 random(1);
  std::string incompressible(1 << 20, '\0');
  for (char& character : incompressible) character = static_cast<char>(random());
  for (const std::string& text : {std::string("a"), std::string(1 << 20, 'a'), incompressible}) {
    EXPECT_TRUE(Gunzip(Gzip(text)) == text) << text.size();
  }
}

// Incompressible text grows by the heads of stored blocks, for which there must be room at any
// size.
TEST(GzipTest, HasRoomForWhatDoesNotCompress) {
  std::mt19937 random(2);
  for (size_t bytes = 1; bytes < 300000; bytes += 1 + bytes / 3 + random() % 7) {
    std::string text(bytes, '\0');
    for (char& character : text) character = static_cast<char>(random());
    EXPECT_TRUE(Gunzip(Gzip(text)) == text) << bytes;
    for (size_t i = 0; i < bytes; i += 5000)
      text.replace(i, std::min<size_t>(2500, bytes - i), 2500, 'a');
    EXPECT_TRUE(Gunzip(Gzip(text)) == text) << bytes << ", half of it compresses";
  }
}

TEST(GzipTest, CompressesNothingToAWholeMember) {
  EXPECT_FALSE(Gzip("").empty());
  EXPECT_EQ(Gunzip(Gzip("")), "");
}

TEST(GzipTest, DecompressesWhatItCompressed) {
  std::mt19937 random(3);
  std::string text(300000, '\0');
  for (char& character : text) character = static_cast<char>(random() % 7);
  EXPECT_TRUE(Decompressed(Gzip(text), text.size()) == text);
  EXPECT_TRUE(Decompressed(Gzip(text) + Gzip("more"), 1 << 20) == text + "more");
  EXPECT_EQ(Decompressed(Gzip(""), 0), "");
  EXPECT_EQ(Decompressed(Gzip(text), text.size() - 1), std::nullopt) << "more than the limit";
}

TEST(GzipTest, DecompressesNothingThatIsDamaged) {
  std::mt19937 random(4);
  const std::string compressed = Gzip(std::string(5000, 'a') + "bcd");
  for (size_t length = 0; length < compressed.size(); ++length)
    EXPECT_EQ(Decompressed(compressed.substr(0, length), 1 << 20), std::nullopt) << length;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = compressed;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    const std::optional<std::string> text = Decompressed(damaged, 1 << 20);
    EXPECT_TRUE(!text || text->size() <= 1 << 20);
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
