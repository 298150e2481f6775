// SPDX-License-Identifier: Apache-2.0
// The structure of each state against its file in tests/page/structures. After a change that is
// meant: bazel run //tests/page:write_structures -- "$PWD/tests/page/structures"
#include "tests/page/structure.h"

#include <string>
#include <vector>

#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

using testing::HasSubstr;

TEST(StructureText, MarksWhatOnlyOneFormHas) {
  EXPECT_EQ(StructureText({"a", "b", "c"}, {"a", "c"}), "  a\n- b\n  c\n");
  EXPECT_EQ(StructureText({"a", "c"}, {"a", "b", "c", "d"}), "  a\n+ b\n  c\n+ d\n");
}

TEST_F(PageTest, EachStateHasTheStructureOfItsFile) {
  for (const std::string state : kStates) {
    const std::vector<std::string> light = StructureOf(*page_, state, kForms[0]);
    EXPECT_EQ(light, StructureOf(*page_, state, kForms[1])) << state << ": light and dark differ";
    EXPECT_EQ(PageFile("structures/" + state + ".txt"),
              StructureText(light, StructureOf(*page_, state, kForms[2])))
        << state;
  }
}

// The basis of the comparison: a change that people would see is a change of the lines.
TEST_F(PageTest, TheStructureNamesWhatChanges) {
  ShowOpen("hang");
  const auto lines = [&] {
    std::string text;
    for (const auto& line : Evaluate(PageFile("structure.js")))
      text += line.get<std::string>() + "\n";
    return text;
  };
  const std::string before = lines();
  EXPECT_THAT(before, HasSubstr("lamp bad\n"));
  EXPECT_THAT(before, HasSubstr("row culprit\n"));
  for (const char* change :
       {"document.querySelector('#communicators-title').remove()",
        "document.querySelector('#communicators th').textContent = 'another'",
        "document.querySelector('#communicators caption').textContent = 'another'",
        "document.querySelector('tr.culprit').className = ''",
        "document.querySelector('#lamp').className = 'lamp good'",
        "document.querySelector('dt').parentElement.hidden = true",
        "document.querySelector('nav').append(document.querySelector('nav a'))"}) {
    const std::string last = lines();
    Evaluate(change);
    EXPECT_TRUE(lines() != last) << change;
  }
  Evaluate("document.querySelector('td').textContent = '77'");
  Evaluate("document.querySelector('h1').textContent = 'another node'");
  const std::string changed = lines();
  EXPECT_THAT(changed, testing::Not(HasSubstr("77")));
  EXPECT_THAT(changed, testing::Not(HasSubstr("another node")));
}

}  // namespace
}  // namespace nccl_exporter
