// SPDX-License-Identifier: Apache-2.0
#include "exporter/node/snapshot_source.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

TEST(SnapshotSourceTest, IsReadyOnceASnapshotWasTaken) {
  bool fails = true;
  SnapshotSource source([&] {
    if (fails) throw std::runtime_error("no descriptors");
    return std::make_shared<const collector::NodeSnapshot>();
  });
  EXPECT_FALSE(source.is_ready());
  EXPECT_THROW(source.Take(), std::runtime_error);
  EXPECT_FALSE(source.is_ready());
  fails = false;
  source.Take();
  EXPECT_TRUE(source.is_ready());
}

}  // namespace
}  // namespace nccl_exporter::exporter
