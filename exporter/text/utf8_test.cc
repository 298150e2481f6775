// SPDX-License-Identifier: Apache-2.0
// Text of other processes: what is kept, what is replaced, where it is cut.
#include "exporter/text/utf8.h"

#include <gtest/gtest.h>

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kNoLimit = 1000;

std::string Quoted(std::string_view text) {
  std::string quoted;
  AppendQuoted(text, quoted);
  return quoted;
}

TEST(Utf8Test, KeepsWellFormedText) {
  for (const std::string_view text : {"", "plain", "z\xC3\xBCrich", "\xE2\x82\xAC",
                                      "\xF0\x9F\x9A\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(ValidUtf8(text, kNoLimit), text);
  }
}

TEST(Utf8Test, ReplacesEachByteThatIsNoPartOfACharacter) {
  const std::string replacement(kReplacementCharacter);
  EXPECT_EQ(ValidUtf8("a\xFFz", kNoLimit), "a" + replacement + "z");
  EXPECT_EQ(ValidUtf8("\xC0\x80", kNoLimit), replacement + replacement) << "overlong";
  EXPECT_EQ(ValidUtf8("\xE0\x9F\xBF", kNoLimit), replacement + replacement + replacement)
      << "overlong";
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80", kNoLimit), replacement + replacement + replacement)
      << "surrogate";
  EXPECT_EQ(ValidUtf8("\xF4\x90\x80\x80", kNoLimit).size(), 4 * replacement.size())
      << "above U+10FFFF";
  EXPECT_EQ(ValidUtf8("\xE2\x82", kNoLimit), replacement + replacement) << "cut short";
  EXPECT_EQ(ValidUtf8(std::string_view("a\0b", 3), kNoLimit), "a" + replacement + "b") << "NUL";
}

// Names of jobs reach terminals, logs, the page and every label. Regression: C1, U+202E and U+200B
// passed in some of them, and ESC in labels.
TEST(Utf8Test, ReplacesWhatAReaderWouldNotSee) {
  const std::string replacement(kReplacementCharacter);
  for (const std::string_view unseen :
       {"\x1B", "\x07", "\n", "\t", "\x7F", "\xC2\x80", "\xC2\x9B", "\xC2\xAD", "\xD8\x9C",
        "\xE2\x80\x8B", "\xE2\x80\x8F", "\xE2\x80\xA8", "\xE2\x80\xAE", "\xE2\x81\xA6",
        "\xE2\x81\xA9", "\xEF\xBB\xBF", "\xEF\xB8\x8F", "\xF3\xA0\x81\x81"}) {
    const std::string text = "x" + std::string(unseen) + "gnp";
    EXPECT_EQ(ValidUtf8(text), "x" + replacement + "gnp") << testing::PrintToString(unseen);
    EXPECT_EQ(ValidUtf8(text, kNoLimit, "?"), "x?gnp") << testing::PrintToString(unseen);
    EXPECT_EQ(Quoted(text).find(unseen), std::string::npos) << testing::PrintToString(unseen);
  }
  for (const std::string_view seen : {" ", "~", "\xC2\xA0", "\xD7\x90", "\xE2\x80\x90",
                                      "\xE4\xB8\x80", "\xEF\xBF\xBD", "\xF0\x9F\x9A\x80"}) {
    EXPECT_EQ(ValidUtf8(seen), seen);
    EXPECT_EQ(Quoted(seen), '"' + std::string(seen) + '"');
  }
}

TEST(Utf8Test, CutsBetweenCharacters) {
  EXPECT_EQ(ValidUtf8("abc", 2), "ab");
  EXPECT_EQ(ValidUtf8("a\xE2\x82\xAC", 4), "a\xE2\x82\xAC");
  EXPECT_EQ(ValidUtf8("a\xE2\x82\xAC", 3), "a");
}

TEST(Utf8Test, QuotesAsJsonDoes) {
  EXPECT_EQ(Quoted("plain"), "\"plain\"");
  EXPECT_EQ(Quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(Quoted("a\nb\x1B[31m\x7F"), "\"a\\nb\\u001b[31m\\u007f\"");
  EXPECT_EQ(Quoted("\xFF"), "\"" + std::string(kReplacementCharacter) + "\"");
}

// Terminals take them for ESC and a letter.
TEST(Utf8Test, EscapesControlsOfTwoBytes) {
  EXPECT_EQ(Quoted("a\xC2\x9B"
                   "2J"),
            "\"a\\u009b2J\"");
  EXPECT_EQ(Quoted("x\xE2\x80\xAEgnp"), "\"x\\u202egnp\"");
  EXPECT_EQ(Quoted("\xC2\xA0"), "\"\xC2\xA0\"");
}

}  // namespace
}  // namespace nccl_exporter::exporter
