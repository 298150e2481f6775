// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/book_source.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

TEST(BookSourceTest, IsReadyOnceASnapshotWasTaken) {
  bool fails = true;
  BookSource source([&] {
    if (fails) throw std::runtime_error("no descriptors");
    return std::make_shared<const Book>(std::make_shared<const collector::NodeSnapshot>());
  });
  EXPECT_FALSE(source.is_ready());
  EXPECT_THROW(source.Take(), std::runtime_error);
  EXPECT_FALSE(source.is_ready());
  fails = false;
  source.Take();
  EXPECT_TRUE(source.is_ready());
}

TEST(BookSourceTest, HangsWhileASnapshotDoesNotEnd) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  std::promise<void> has_begun;
  std::promise<void> may_end;
  BookSource source([&] {
    has_begun.set_value();
    may_end.get_future().wait();
    return std::make_shared<const Book>(std::make_shared<const collector::NodeSnapshot>());
  });
  EXPECT_FALSE(source.HangsAt(now() + std::chrono::hours(1))) << "none is under way";
  const std::future<void> take = std::async(std::launch::async, [&] { source.Take(); });
  has_begun.get_future().wait();
  EXPECT_FALSE(source.HangsAt(now()));
  EXPECT_TRUE(source.HangsAt(now() + kSnapshotHangLimit));
  may_end.set_value();
  take.wait();
  EXPECT_FALSE(source.HangsAt(now() + std::chrono::hours(1)));
}

}  // namespace
}  // namespace nccl_exporter::exporter
