// SPDX-License-Identifier: Apache-2.0
// The page on a phone, and for screen readers.
#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

TEST_F(PageTest, FitsAPhoneAndHasNamesForScreenReaders) {
  page_->Resize(kForms[2]);
  for (const char* state : {"empty", "quiet", "hang", "many", "unreadable", "straggler"}) {
    SCOPED_TRACE(state);
    ShowOpen(state);
    EXPECT_EQ(Evaluate("document.documentElement.scrollWidth"), 390) << "no sideways scrolling";
    EXPECT_EQ(Evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(16, 21, 27)");
    EXPECT_EQ(Evaluate("document.querySelectorAll('h1').length"), 1);
    EXPECT_EQ(Evaluate("[...document.querySelectorAll('table')].every((table) => table.caption && "
                       "table.caption.textContent)"),
              true);
    EXPECT_EQ(Evaluate("[...document.querySelectorAll('.field')].every((field) => field.tabIndex "
                       "=== 0 && field.getAttribute('aria-label') && "
                       "field.getAttribute('aria-valuetext'))"),
              true)
        << "charts are reached by keyboard, and say their values";
    EXPECT_EQ(Evaluate("[...document.querySelectorAll('.wide')].every((box) => box.tabIndex === 0 "
                       "&& box.getAttribute('aria-label'))"),
              true)
        << "tables that scroll are reached by keyboard and have a name";
    EXPECT_EQ(Evaluate("document.querySelectorAll('[aria-live]').length"), 1)
        << "only the headline speaks by itself";
  }
}

}  // namespace
}  // namespace nccl_exporter
