// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/nccl_parameter.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plugin/nccl/hand_made_environment.h"

namespace nccl_exporter::plugin {
namespace {

bool IsOff(std::map<std::string, std::string> variables) {
  HandMadeEnvironment::Set(std::move(variables));
  return IsAllgathervOff(HandMadeEnvironment::Get);
}

TEST(IsAllgathervOff, ReadsTheValueAsNcclDoes) {
  for (const char* off : {"0", "00", "0x0", " 0", "no", "0.5"})
    EXPECT_TRUE(IsOff({{"NCCL_ALLGATHERV_ENABLE", off}}));
  for (const char* on : {"", "1", "-1", "0x1", "99999999999999999999"}) {
    EXPECT_FALSE(IsOff({{"NCCL_ALLGATHERV_ENABLE", on}})) << on;
  }
  EXPECT_FALSE(IsOff({}));
}

TEST(IsAllgathervOff, IsNotCertainWhereNcclMayReadAnotherValue) {
  EXPECT_FALSE(IsOff({{"NCCL_ALLGATHERV_ENABLE", "0"}, {"NCCL_ENV_PLUGIN", "site"}}));
  EXPECT_FALSE(
      IsOff({{"NCCL_ALLGATHERV_ENABLE", "0"}, {"NCCL_NO_CACHE", "NCCL_ALLGATHERV_ENABLE"}}));
  EXPECT_TRUE(IsOff({{"NCCL_ALLGATHERV_ENABLE", "0"}, {"NCCL_ENV_PLUGIN", "none"}}));
}

}  // namespace
}  // namespace nccl_exporter::plugin
