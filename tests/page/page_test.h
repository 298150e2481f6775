// SPDX-License-Identifier: Apache-2.0
// PageTest, the fixture of the page's tests. Whatever a test does with the page, it fails where the
// page logs an error or asks for something elsewhere.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "exporter/testing/eventually.h"
#include "tests/page/page.h"

namespace nccl_exporter {

inline constexpr char kFirstRow[] = "#communicator-list summary";
inline constexpr char kCulprits[] = "#communicator-list tr.culprit";
inline constexpr char kWaiting[] = "#communicator-list tr.waits";

class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Browser::Path().empty())
      GTEST_SKIP() << "Chromium is not installed (Debian: chromium-headless-shell)";
    page_ = std::make_unique<Page>();
  }

  void TearDown() override {
    if (!page_) return;
    Evaluate("0");  // brings what the browser has said before
    EXPECT_THAT(page_->browser().errors(), testing::IsEmpty());
    const std::string origin = page_->daemon().Url("");
    for (const std::string& url : page_->browser().requests())
      EXPECT_THAT(url, testing::AnyOf(testing::StartsWith(origin), "about:blank"));
  }

  void Show(const std::string& state, const std::string& hash = "") {
    ASSERT_TRUE(page_->Show(state, hash)) << state;
  }
  void ShowOpen(const std::string& state) {
    Show(state);
    ASSERT_TRUE(page_->OpenFirst()) << state;
  }
  void Click(const std::string& selector) { page_->Click(selector); }
  nlohmann::json Evaluate(const std::string& expression) { return page_->Evaluate(expression); }
  std::string Text(const std::string& selector) { return page_->Text(selector); }
  nlohmann::json Texts(const std::string& selector) { return page_->Texts(selector); }
  bool EventuallyShows(const std::string& selector, const std::string& text) {
    return page_->EventuallyShows(selector, text);
  }
  nlohmann::json OfChart(const std::string& title, const std::string& what) {
    return page_->OfChart(title, what);
  }

  std::unique_ptr<Page> page_;
};

}  // namespace nccl_exporter
