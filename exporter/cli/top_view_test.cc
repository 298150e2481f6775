// SPDX-License-Identifier: Apache-2.0
// Keys of `nccl-exporter top`.
#include "exporter/cli/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace nccl_exporter::exporter {
namespace {

using Kind = Key::Kind;
using Mode = TopView::Mode;

std::vector<Kind> KindsOf(std::string typed) {
  std::vector<Kind> kinds;
  while (!typed.empty()) kinds.push_back(TakeKey(typed).kind);
  return kinds;
}

TEST(TakeKeyTest, ReadsSequencesOfXterm) {
  EXPECT_THAT(
      KindsOf("\x1b[A\x1b[B\x1bOA\x1b[5~\x1b[6~\r\x7fx"),
      testing::ElementsAre(Kind::kUp, Kind::kDown, Kind::kUp, Kind::kPageUp, Kind::kPageDown,
                           Kind::kEnter, Kind::kBackspace, Kind::kCharacter));
  EXPECT_THAT(KindsOf("\x1b"), testing::ElementsAre(Kind::kEscape));
  EXPECT_THAT(KindsOf("\x1b[1;5Cq"), testing::ElementsAre(Kind::kNothing, Kind::kCharacter))
      << "an unknown sequence is no text";
  EXPECT_THAT(KindsOf("\x1b["), testing::SizeIs(1)) << "a sequence that is cut off";
}

class ApplyTest : public testing::Test {
 protected:
  bool Type(const std::string& keys) {
    std::string typed = keys;
    bool goes_on = true;
    while (!typed.empty()) {
      shown_.marked = view_.marked;
      goes_on = Apply(TakeKey(typed), shown_, view_);
    }
    return goes_on;
  }

  TopPicture shown_{.text = "", .ranks = 20, .page = 8, .marked = 0, .marked_id = RankId{}};
  TopView view_;
};

TEST_F(ApplyTest, AFilterIsTypedAndKeptOrGivenUp) {
  EXPECT_TRUE(Type("/pq p"));
  EXPECT_EQ(view_.filter, "pq p") << "letters that are commands elsewhere";
  EXPECT_TRUE(Type("\x7f\x7fü\x7f\r"));
  EXPECT_EQ(view_.filter, "pq") << "a character of two bytes is one";
  EXPECT_EQ(view_.mode, Mode::kTable);
  EXPECT_TRUE(Type("/x\x1b"));
  EXPECT_EQ(view_.filter, "");
  EXPECT_EQ(view_.mode, Mode::kTable);
}

TEST_F(ApplyTest, TheMarkStaysInTheTable) {
  Type("\x1b[A");
  EXPECT_EQ(view_.marked, 0u);
  Type("j\x1b[6~");
  EXPECT_EQ(view_.marked, 9u);
  Type("\x1b[6~\x1b[6~\x1b[B");
  EXPECT_EQ(view_.marked, 19u);
  Type("\x1b[5~k");
  EXPECT_EQ(view_.marked, 10u);
  shown_.ranks = 0;
  Type("j");
  EXPECT_EQ(view_.marked, 0u);
}

TEST_F(ApplyTest, HelpAndDetailsEndWithAnyKey) {
  Type("?");
  EXPECT_EQ(view_.mode, Mode::kHelp);
  EXPECT_TRUE(Type("q")) << "q leaves the help";
  EXPECT_EQ(view_.mode, Mode::kTable);
  Type("\r");
  EXPECT_EQ(view_.mode, Mode::kDetails);
  EXPECT_EQ(view_.details, shown_.marked_id);
  Type("\x1b");
  EXPECT_EQ(view_.mode, Mode::kTable);
  EXPECT_FALSE(Type("q"));
}

TEST_F(ApplyTest, PausesAndSorts) {
  Type("psss");
  EXPECT_TRUE(view_.is_paused);
  EXPECT_EQ(view_.sort, RankSort::kBehind);
  Type("ps");
  EXPECT_FALSE(view_.is_paused);
  EXPECT_EQ(view_.sort, RankSort::kRank);
}

TEST_F(ApplyTest, TheEndOfTheInputEndsInEveryMode) {
  for (const Mode mode : {Mode::kTable, Mode::kTyping, Mode::kDetails, Mode::kHelp}) {
    view_.mode = mode;
    EXPECT_FALSE(Apply({.kind = Kind::kEnd}, shown_, view_));
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
