// SPDX-License-Identifier: Apache-2.0
// The page by axe-core's rules for people who see, hear or move otherwise, in each state and form.
#include <string>

#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

class AxeTest : public PageTest {
 protected:
  void SetUp() override {
    if (AxeScript().empty()) GTEST_SKIP() << "axe-core is not there: tools/fetch-axe fetches it";
    PageTest::SetUp();
    if (page_) page_->browser().RunFirst(AxeScript());
  }

  json SeriousFindings() { return Evaluate(kSeriousFindings); }
};

TEST_F(AxeTest, FindsNothingSeriousInAnyState) {
  for (const Form& form : kForms) {
    page_->Resize(form);
    for (const std::string state : kStates) {
      ShowOpen(state);
      EXPECT_EQ(SeriousFindings(), json::array()) << state << ", " << form.name;
    }
  }
}

TEST_F(AxeTest, WouldFindAFault) {
  Show("quiet");
  Evaluate("document.querySelector('#headline').style.color = '#999999'");
  EXPECT_THAT(SeriousFindings().dump(), testing::HasSubstr("color-contrast"));
}

}  // namespace
}  // namespace nccl_exporter
