// SPDX-License-Identifier: Apache-2.0
// Text fields with and without end, and what is no UTF-8.
#include "collector/reader/text_field.h"

#include <gtest/gtest.h>

#include <string_view>

namespace nccl_exporter::collector {
namespace {

std::string Text(std::string_view field) { return TextOf(std::span(field.data(), field.size())); }

TEST(TextFieldTest, EndsAtTheNulOrWithTheField) {
  EXPECT_EQ(Text(""), "");
  EXPECT_EQ(Text("whole"), "whole");
  EXPECT_EQ(Text(std::string_view("cut\0rest", 8)), "cut");
}

TEST(TextFieldTest, KeepsCharactersOfEachLength) {
  const std::string text = "a\u00e9\u20ac\U0001f600\u0080\u07ff\u0800\uffff\U00010000\U0010ffff";
  EXPECT_EQ(Text(text), text);
}

TEST(TextFieldTest, ReplacesEachByteThatBelongsToNoCharacter) {
  EXPECT_EQ(Text("a\x80z"), "a?z");             // continuation without lead
  EXPECT_EQ(Text("a\xffz"), "a?z");             // never a lead
  EXPECT_EQ(Text("a\xe2\x82"), "a??");          // cut off by the end of the field
  EXPECT_EQ(Text("a\xe2\x82z"), "a??z");        // cut off by another character
  EXPECT_EQ(Text("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(Text("\xe0\x80\xaf"), "???");       // overlong
  EXPECT_EQ(Text("\xf0\x80\x80\xaf"), "????");  // overlong
  EXPECT_EQ(Text("\xed\xa0\x80"), "???");       // surrogate
  EXPECT_EQ(Text("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(Text("\xf5\x80\x80\x80"), "????");  // above U+10FFFF
}

}  // namespace
}  // namespace nccl_exporter::collector
