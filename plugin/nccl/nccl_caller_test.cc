// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/nccl_caller.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plugin/testing/hand_made_environment.h"

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

bool AreBuffersOff(std::map<std::string, std::string> variables) {
  HandMadeEnvironment::Set(std::move(variables));
  return AreNvlsBuffersOff(HandMadeEnvironment::Get);
}

TEST(AreNvlsBuffersOff, IsTrueWithoutNvlsOrWithoutRegistration) {
  EXPECT_TRUE(AreBuffersOff({{"NCCL_NVLS_ENABLE", "0"}}));
  EXPECT_TRUE(AreBuffersOff({{"NCCL_LOCAL_REGISTER", "0"}, {"NCCL_GRAPH_REGISTER", "0"}}));
  EXPECT_FALSE(AreBuffersOff({}));
  EXPECT_FALSE(AreBuffersOff({{"NCCL_NVLS_ENABLE", "1"}}));
  EXPECT_FALSE(AreBuffersOff({{"NCCL_LOCAL_REGISTER", "0"}})) << "captured graphs register too";
  EXPECT_FALSE(AreBuffersOff({{"NCCL_GRAPH_REGISTER", "0"}}));
  EXPECT_FALSE(AreBuffersOff({{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_ENV_PLUGIN", "site"}}));
  EXPECT_FALSE(AreBuffersOff({{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_NO_CACHE", "ALL"}}));
}

TEST(AreNvlsBuffersOff, ReadsOneListOfAlgorithmsForAllFunctions) {
  for (const char* without :
       {"Ring", "ring,tree", "^NVLS,NVLSTree", "^collnetdirect,nvlstree,nvls"})
    EXPECT_TRUE(AreBuffersOff({{"NCCL_ALGO", without}})) << without;
  for (const char* with : {"", "NVLS", "ring,nvlstree", "nvls,", "^Ring", "^NVLS", "^nvls,tree",
                           "allreduce:ring", "ring;allreduce:nvls"})
    EXPECT_FALSE(AreBuffersOff({{"NCCL_ALGO", with}})) << with;
}

TEST(SharesResources, ReadsBothVariables) {
  const auto shares = [](const char* name, const char* value) {
    HandMadeEnvironment::Set({{name, value}});
    return SharesResources(HandMadeEnvironment::Get);
  };
  for (const char* name : {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_COMM_SHRINK_SHARE_RESOURCES"}) {
    EXPECT_TRUE(shares(name, "1"));
    EXPECT_TRUE(shares(name, "0x2"));
    EXPECT_FALSE(shares(name, "0"));
    EXPECT_FALSE(shares(name, ""));
  }
  EXPECT_FALSE(shares("NCCL_COMM_SPLIT", "1"));
}

}  // namespace
}  // namespace nccl_exporter::plugin
