// SPDX-License-Identifier: Apache-2.0
// The basis of the page's tests: an error in the browser is seen, of whatever kind it is.
#include "tests/page/browser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/testing/eventually.h"
#include "tests/page/page.h"

namespace nccl_exporter {
namespace {

TEST(Browser, SeesErrorsOfThePageAndOfItsPolicy) {
  if (Browser::Path().empty())
    GTEST_SKIP() << "Chromium is not installed (Debian: chromium-headless-shell)";
  for (const char* fault :
       {"console.error('said')", "setTimeout(() => { throw new Error('thrown'); }), 0",
        "document.body.append(Object.assign("
        "document.createElement('script'), { textContent: '1' })), 0",
        "document.body.append(Object.assign(new Image(), { src: 'http://localhost:1/' })), 0"}) {
    Page page;
    ASSERT_TRUE(page.Show("quiet"));
    page.Evaluate("0");
    EXPECT_THAT(page.browser().errors(), testing::IsEmpty());
    page.Evaluate(fault);
    EXPECT_TRUE(exporter::Eventually([&] {
      page.Evaluate("0");
      return !page.browser().errors().empty();
    })) << fault;
  }
}

}  // namespace
}  // namespace nccl_exporter
