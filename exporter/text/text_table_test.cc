// SPDX-License-Identifier: Apache-2.0
// Texts and tables in a narrow terminal.
#include "exporter/text/text_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;

TEST(WrappedTest, BreaksBetweenWordsAndInsideOfLongOnes) {
  EXPECT_THAT(Wrapped("rank 3 has not entered", 10), ElementsAre("rank 3 has", "not", "entered"));
  EXPECT_THAT(Wrapped("abcdefgh", 3), ElementsAre("abc", "def", "gh"));
  EXPECT_THAT(Wrapped("größer größer", 6), ElementsAre("größer", "größer"));
  EXPECT_THAT(Wrapped("no limit at all", 0), ElementsAre("no limit at all"));
  EXPECT_THAT(Wrapped("", 5), ElementsAre(""));
}

TEST(CutTest, KeepsWholeCharactersAndSaysThatItCuts) {
  EXPECT_EQ(Cut("größer", 6), "größer");
  EXPECT_EQ(Cut("größer", 4), "grö…");
  EXPECT_EQ(Cut("ab", 1), "…");
}

TextTable ThreeColumns() {
  TextTable table({{"NAME", true}, {"STARTED", false, 1}, {"STATE", true, 2}, {"FOR", false}});
  table.Add({"tensor parallel", "1234", "waits", "45 s"});
  return table;
}

TEST(TextTableTest, AlignsWhatFits) {
  EXPECT_THAT(ThreeColumns().Lines(0), ElementsAre("NAME             STARTED  STATE   FOR",
                                                   "tensor parallel     1234  waits  45 s"));
}

TEST(TextTableTest, LeavesOutColumnsInTheirOrder) {
  EXPECT_THAT(ThreeColumns().Lines(30),
              ElementsAre("NAME             STATE   FOR", "tensor parallel  waits  45 s"));
  EXPECT_THAT(ThreeColumns().Lines(21), ElementsAre("NAME              FOR",  //
                                                    "tensor parallel  45 s"));
}

TEST(TextTableTest, NarrowsTheFirstColumnAtLast) {
  EXPECT_THAT(ThreeColumns().Lines(12), ElementsAre("NAME     FOR", "tenso…  45 s"));
}

TEST(TextTableTest, WrapsALastColumnOfTextBeforeNamesAreCut) {
  TextTable table({{"WHO", true}, {"LOST"}, {"BY CAUSE", true}});
  table.Add({"vision", "9 GPU h", "hang 8 GPU h, slow transfers 1 GPU h"});
  table.Add({"speech", "", "late rank"});
  EXPECT_THAT(table.Lines(40),
              ElementsAre("WHO        LOST  BY CAUSE", "vision  9 GPU h  hang 8 GPU h, slow",
                          "                 transfers 1 GPU h", "speech           late rank"));
  EXPECT_THAT(table.Lines(35),
              ElementsAre("WHO      LOST  BY CAUSE", "vis…  9 GPU h  hang 8 GPU h, slow",
                          "               transfers 1 GPU h", "spe…           late rank"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
