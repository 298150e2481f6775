// SPDX-License-Identifier: Apache-2.0
// The page by axe-core's rules for people who see, hear or move otherwise, in each state and form.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

// Where tools/fetch-axe leaves it.
constexpr char kAxe[] = "/var/cache/nccl-exporter/page/node_modules/axe-core/axe.min.js";

class AxeTest : public PageTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kAxe))
      GTEST_SKIP() << "axe-core is not there (" << kAxe << "): tools/fetch-axe fetches it";
    PageTest::SetUp();
    if (!page_) return;
    std::ifstream file(kAxe);
    std::stringstream script;
    script << file.rdbuf();
    page_->browser().RunFirst(script.str());
  }

  // "rule: element", a line each. Without `preload` it asks for nothing by itself.
  json SeriousFindings() {
    return Evaluate(
        "axe.run(document, { preload: false, resultTypes: ['violations'] }).then((answer) => "
        "answer.violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')"
        ".flatMap(({ id, nodes }) => nodes.slice(0, 3).map((node) => `${id}: ${node.html}`)))");
  }
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
