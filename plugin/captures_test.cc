// SPDX-License-Identifier: Apache-2.0
#include "plugin/captures.h"

#include <gtest/gtest.h>

namespace nccl_exporter::plugin {
namespace {

TEST(LaunchBlockingTest, IsReadAsNcclDoes) {
  EXPECT_FALSE(IsLaunchBlocking(nullptr));
  EXPECT_FALSE(IsLaunchBlocking(""));
  EXPECT_FALSE(IsLaunchBlocking("0"));
  EXPECT_TRUE(IsLaunchBlocking("1"));
  EXPECT_TRUE(IsLaunchBlocking("00"));
  EXPECT_TRUE(IsLaunchBlocking("no"));
}

}  // namespace
}  // namespace nccl_exporter::plugin
