// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "plugin/identity/gpu_identity.h"
#include "plugin/nccl/nccl_version.h"

namespace nccl_exporter::plugin {
namespace {

const char* Environment(const char* name) { return std::getenv(name); }

std::string Copied(size_t size, const char* text) {
  std::string field(size, '#');
  CopyText(field.data(), size, text);
  EXPECT_EQ(field.find('#'), std::string::npos) << "the rest of the field is not cleared";
  return field.c_str();
}

TEST(Identity, CutsATextAtAWholeCharacter) {
  EXPECT_EQ(Copied(8, "short"), "short");
  EXPECT_EQ(Copied(8, "exactly7"), "exactly");
  EXPECT_EQ(Copied(5, "abc\u00e9"), "abc");  // two bytes, one would fit
  EXPECT_EQ(Copied(6, "abc\u00e9"), "abc\u00e9");
  EXPECT_EQ(Copied(4, "\U0001f600"), "");  // four bytes, three would fit
  EXPECT_EQ(Copied(4, nullptr), "");
}

TEST(Identity, CopiesVariablesOfTheAllowListAndNoOther) {
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("POD_NAME", "trainer-0", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  unsetenv("RANK");
  auto header = std::make_unique<layout::SegmentHeader>();
  WriteProcessIdentity(header.get(), Environment);
  std::string pairs;
  for (uint64_t i = 0; i < header->identity_count; ++i) {
    pairs += std::string(header->identity[i].key) + "=" + header->identity[i].value + ";";
  }
  EXPECT_NE(pairs.find("SLURM_JOB_ID=4711;"), std::string::npos);
  EXPECT_NE(pairs.find("POD_NAME=trainer-0;"), std::string::npos);
  EXPECT_EQ(pairs.find("secret"), std::string::npos);
  EXPECT_EQ(pairs.find("RANK="), std::string::npos);
  EXPECT_EQ(header->pid, static_cast<uint64_t>(getpid()));
  EXPECT_STREQ(header->executable, "identity_test");
}

const char* Nothing(const char*) { return nullptr; }
const char* TwoTasks(const char* name) {
  return std::string_view(name) == "SLURM_NTASKS_PER_NODE" ? "2" : nullptr;
}

TEST(Identity, TakesTheNumberOfLocalRanksFromTheLauncher) {
  EXPECT_EQ(FindLocalRanks(Nothing).on_node, 8u);
  EXPECT_EQ(FindLocalRanks([](const char* name) {
              return std::string_view(name) == "LOCAL_WORLD_SIZE" ? "4" : nullptr;
            }).on_node,
            4u);
  EXPECT_EQ(FindLocalRanks(TwoTasks).on_node, 2u);
  EXPECT_EQ(FindLocalRanks([](const char*) { return "many"; }).on_node, 8u);
  EXPECT_EQ(FindLocalRanks(TwoTasks, 4, 4).on_node, 2u) << "a communicator with one rank per node";
}

TEST(Identity, TakesTheNumberOfLocalRanksFromTheCommunicatorWhereItHasMore) {
  EXPECT_EQ(FindLocalRanks(Nothing, 16, 4).on_node, 4u);
  EXPECT_EQ(FindLocalRanks(Nothing, 17, 4).on_node, 5u);
  EXPECT_EQ(FindLocalRanks(Nothing, 2, 4).on_node, 8u) << "not believed";
  EXPECT_EQ(FindLocalRanks(Nothing, 4, 4).on_node, 8u)
      << "the job may have other ranks on the node";
  const LocalRanks four_per_process = FindLocalRanks(TwoTasks, 32, 4);
  EXPECT_EQ(four_per_process.on_node, 8u);
  EXPECT_EQ(four_per_process.in_process, 4u);
}

// The variable that this launcher sets besides RANK.
template <const char* kVariable>
const char* TwoBesideRank(const char* name) {
  return std::string_view(name) == "RANK"      ? "0"
         : std::string_view(name) == kVariable ? "2"
                                               : nullptr;
}
constexpr char kWorldSize[] = "WORLD_SIZE";
constexpr char kLocalWorldSize[] = "LOCAL_WORLD_SIZE";

TEST(Identity, SeesThatACommunicatorHasMoreRanksThanTheLauncherHasProcesses) {
  EXPECT_TRUE(HasMoreRanksThanProcesses(TwoBesideRank<kWorldSize>, 3, 2));
  EXPECT_FALSE(HasMoreRanksThanProcesses(TwoBesideRank<kWorldSize>, 2, 1));
  EXPECT_TRUE(HasMoreRanksThanProcesses(TwoBesideRank<kLocalWorldSize>, 3, 1));
  EXPECT_FALSE(HasMoreRanksThanProcesses(TwoBesideRank<kLocalWorldSize>, 3, 2))
      << "two here, one elsewhere";
  EXPECT_FALSE(HasMoreRanksThanProcesses(TwoBesideRank<kWorldSize>, 0, 0)) << "ranks not known";
  const auto slurm = [](const char* name) {
    return std::string_view(name) == "SLURM_STEP_NUM_TASKS" ? "4"
           : std::string_view(name) == "WORLD_SIZE"         ? "1"
                                                            : nullptr;
  };
  EXPECT_TRUE(HasMoreRanksThanProcesses(slurm, 5, 2));
  EXPECT_FALSE(HasMoreRanksThanProcesses(slurm, 4, 1)) << "WORLD_SIZE goes with RANK";
  EXPECT_FALSE(HasMoreRanksThanProcesses([](const char*) -> const char* { return nullptr; }, 8, 1));
  EXPECT_FALSE(HasMoreRanksThanProcesses([](const char*) { return "many"; }, 8, 1));
}

TEST(GpuIdentity, MapsCudasOrdinalToTheNodesIndex) {
  EXPECT_EQ(NodeIndex(nullptr, 3), 3);
  EXPECT_EQ(NodeIndex("", 3), 3);
  EXPECT_EQ(NodeIndex("5", 0), 5);
  EXPECT_EQ(NodeIndex("4,5,6", 2), 6);
  EXPECT_EQ(NodeIndex("4,5", 2), -1);
  EXPECT_EQ(NodeIndex("GPU-1a2b", 0), -1);
  EXPECT_EQ(NodeIndex("-1", 0), -1);
}

TEST(GpuIdentity, WritesAUuidAsNvmlDoes) {
  unsigned char bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<unsigned char>(i * 17);
  char text[64];
  FormatUuid(bytes, text, sizeof(text));
  EXPECT_STREQ(text, "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

TEST(GpuIdentity, KnowsNothingWithoutADriver) {
  const GpuIdentity gpu = FindGpu(nullptr);
  EXPECT_EQ(gpu.index, -1);
  EXPECT_STREQ(gpu.uuid, "");
}

TEST(NcclVersion, IsZeroForAnAddressOutsideNccl) {
  int local = 0;
  EXPECT_EQ(FindNcclVersion(&local), 0);
  EXPECT_EQ(FindNcclVersion(nullptr), 0);
  EXPECT_EQ(FindNcclVersion(reinterpret_cast<void*>(&getpid)), 0);
}

}  // namespace
}  // namespace nccl_exporter::plugin
