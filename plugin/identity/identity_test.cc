// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/identity.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin/nccl/nccl_caller.h"
#include "proto/identity_variables.h"
#include "proto/user_labels.h"

namespace nccl_exporter::plugin {
namespace {

using namespace std::string_literals;

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

std::string long_value;

// Regresses: jobs whose names are longer than the field, and differ at the end, were one job.
TEST(Identity, DistinguishesValuesThatDifferBehindTheCut) {
  const auto kept = [](const std::string& value) -> std::string {
    long_value = value;
    auto header = std::make_unique<layout::SegmentHeader>();
    WriteProcessIdentity(header.get(), [](const char* name) {
      return std::strcmp(name, "NCCL_EXPORTER_JOB") == 0 ? long_value.c_str() : nullptr;
    });
    EXPECT_EQ(header->identity_count, 1u);
    return header->identity[0].value;
  };
  const std::string fits(95, 'n');
  EXPECT_EQ(kept(fits), fits);
  const std::string first = kept(fits + "-1");
  EXPECT_EQ(first.size(), 95u);
  EXPECT_EQ(first.substr(0, 87), fits.substr(0, 86) + '~');
  EXPECT_NE(first, kept(fits + "-2"));
  EXPECT_NE(first, kept(fits + std::string(100'000, 'n')));
  EXPECT_EQ(first, kept(fits + "-1")) << "on each rank";
  const std::string cut = kept(std::string(85, 'n') + "\u00e9" + fits);
  EXPECT_EQ(cut.substr(0, 86), fits.substr(0, 85) + '~') << "at a whole character";
  EXPECT_EQ(cut.size(), 94u);
}

TEST(Identity, HasThePairsOfTheUsersLabels) {
  setenv("POD_NAME", "trainer-0", 1);
  auto header = std::make_unique<layout::SegmentHeader>();
  const std::string name(kUserLabelNameBytes, 'n'), value(kUserLabelValueBytes, 'v');
  WriteProcessIdentity(header.get(), Environment, ("team=x," + name + "=" + value).c_str());
  EXPECT_STREQ(header->identity[0].key, "label:team");
  EXPECT_STREQ(header->identity[0].value, "x");
  EXPECT_EQ(header->identity[1].key, "label:" + name);
  EXPECT_EQ(header->identity[1].value, value);
  EXPECT_GT(header->identity_count, 2u) << "variables come after them";
}

TEST(Identity, HasRoomForAllLabelsAndVariables) {
  auto header = std::make_unique<layout::SegmentHeader>();
  WriteProcessIdentity(
      header.get(), [](const char*) { return "7"; }, "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1");
  ASSERT_EQ(header->identity_count, kMostUserLabels + kIdentityVariables.size());
  EXPECT_STREQ(header->identity[7].key, "label:h");
  EXPECT_STREQ(header->identity[8].key, "RANK");
  EXPECT_STREQ(header->identity[header->identity_count - 1].key, kIdentityVariables.back().name);
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs PairsOf(std::vector<std::string> variables, const char* (*get)(const char* name),
              const char* labels = nullptr) {
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  auto header = std::make_unique<layout::SegmentHeader>();
  std::memset(static_cast<void*>(header->identity), '#', sizeof(header->identity));
  WriteProcessIdentity(header.get(), get, labels, environment.data());
  Pairs pairs;
  for (uint64_t i = 0; i < header->identity_count; ++i)
    pairs.emplace_back(header->identity[i].key, header->identity[i].value);
  return pairs;
}

const char* NoVariable(const char*) { return nullptr; }

TEST(Identity, HasThePairsOfNcclsVariablesByName) {
  const std::string hcas(200, 'h');
  const Pairs pairs = PairsOf(
      {"PATH=/bin", "NCCL_IB_HCA=" + hcas, "NCCL_DEBUG=INFO", "NCCL_=x", "NCCL_EXPORTER_DIR=/x",
       "NCCL_NO_VALUE", "XNCCL_DEBUG=x", "NCCL_" + std::string(26, 'F') + "=fits",
       "NCCL_" + std::string(27, 'L') + "=a=b", "NCCL_ALGO="},
      NoVariable);
  ASSERT_EQ(pairs.size(), 6u);
  EXPECT_EQ(pairs[0].first, "NCCL_*");
  EXPECT_EQ(pairs[0].second.substr(0, 2), "5~");
  EXPECT_EQ(pairs[1], std::pair("NCCL_"s, "x"s));
  EXPECT_EQ(pairs[2], std::pair("NCCL_DEBUG"s, "INFO"s));
  EXPECT_EQ(pairs[3], std::pair("NCCL_" + std::string(26, 'F'), "fits"s));
  EXPECT_EQ(pairs[4].first, "NCCL_IB_HCA");
  EXPECT_EQ(pairs[4].second.substr(0, 87), hcas.substr(0, 86) + '~');
  EXPECT_EQ(pairs[5], std::pair("NCCL_" + std::string(25, 'L') + '~', "a=b"s));
  EXPECT_EQ(PairsOf({}, NoVariable), (Pairs{{"NCCL_*", "0~00000000"}}));
}

// The number and hash are those of all.
TEST(Identity, HasAsManyVariablesOfNcclAsFindRoom) {
  std::vector<std::string> variables;
  for (char name = 'A'; name <= 'Z'; ++name) variables.push_back("NCCL_"s + name + "=1");
  const auto seven = [](const char*) { return "7"; };
  constexpr char kLabels[] = "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1";
  const Pairs pairs = PairsOf(variables, seven, kLabels);
  ASSERT_EQ(pairs.size(), static_cast<size_t>(layout::kIdentityPairs));
  EXPECT_EQ(pairs[30].first, kAllNcclVariables);
  EXPECT_EQ(pairs[30].second.substr(0, 3), "26~");
  EXPECT_EQ(pairs[31], std::pair("NCCL_A"s, "1"s));
  EXPECT_EQ(PairsOf(variables, NoVariable).size(), 27u);
  EXPECT_EQ(PairsOf(variables, NoVariable)[0], pairs[30]) << "whatever else finds room";
  std::ranges::reverse(variables);
  EXPECT_EQ(PairsOf(variables, seven, kLabels), pairs) << "in any order of the environment";
  variables.front().back() = '2';
  EXPECT_NE(PairsOf(variables, seven, kLabels)[30], pairs[30]);
  const std::vector<std::string> many(1000, "NCCL_A=1");
  EXPECT_EQ(PairsOf(many, NoVariable)[0].second.substr(0, 4), "256~");
}

// Regresses: names of 63 and 64 bytes, which Linux has and Kubernetes makes, were lost. A user
// namespace gives the child a name of its own.
TEST(Identity, KeepsTheLongestHostNames) {
  for (const size_t length : {1u, 62u, 63u, 64u}) {
    const std::string name = std::string(length - 1, 'n') + "7";
    const pid_t child = fork();
    if (child == 0) {
      if (unshare(CLONE_NEWUSER | CLONE_NEWUTS) != 0 || sethostname(name.data(), length) != 0)
        _exit(2);
      auto header = std::make_unique<layout::SegmentHeader>();
      WriteProcessIdentity(header.get(), Environment);
      const size_t kept = strnlen(header->host_name, sizeof(header->host_name));
      _exit(std::string(header->host_name, kept) == name ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces";
    EXPECT_EQ(status, 0) << length;
  }
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
  FormatUuid("GPU-", bytes, text, sizeof(text));
  EXPECT_STREQ(text, "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

// A MIG instance: the number of its GPU is 0, its own 1.
int OfGpu(CudaUuid* uuid, int) { return *uuid = {}, 0; }
int OfInstance(CudaUuid* uuid, int) { return *uuid = {}, uuid->bytes[15] = 1, 0; }
constexpr char kOfGpu[] = "GPU-00000000-0000-0000-0000-000000000000";
constexpr char kOfInstance[] = "MIG-00000000-0000-0000-0000-000000000001";

std::map<std::string, std::string> variables;
const char* Variable(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}
GpuIdentity GpuIn(std::map<std::string, std::string> environment, CudaDriver driver) {
  variables = std::move(environment);
  driver.get_device = [](int* device) { return *device = 0, 0; };
  return AskDriver(driver, Variable);
}

// Regresses: the UUID of an instance began with GPU-, which no tool knows.
TEST(GpuIdentity, KnowsMigInstances) {
  EXPECT_STREQ(GpuIn({}, {.get_uuid = OfGpu, .get_uuid_v2 = OfInstance}).uuid, kOfInstance);
  EXPECT_STREQ(GpuIn({}, {.get_uuid = OfGpu, .get_uuid_v2 = OfGpu}).uuid, kOfGpu);
  EXPECT_STREQ(GpuIn({}, {.get_uuid = OfGpu}).uuid, kOfGpu);
  EXPECT_STREQ(GpuIn({{"CUDA_VISIBLE_DEVICES", "MIG-1a2b"}}, {.get_uuid_v2 = OfInstance}).uuid,
               kOfInstance);
  EXPECT_STREQ(GpuIn({{"CUDA_VISIBLE_DEVICES", "GPU-1a2b"}}, {.get_uuid_v2 = OfGpu}).uuid, kOfGpu);
}

// Regresses: the first GPU of a container had the number of the node's first.
TEST(GpuIdentity, HasNoNumberOnTheNodeWhereGpusAreHidden) {
  EXPECT_EQ(GpuIn({}, {}).index, 0);
  EXPECT_EQ(GpuIn({{"CUDA_VISIBLE_DEVICES", "5"}}, {}).index, 5);
  EXPECT_EQ(GpuIn({{"NVIDIA_VISIBLE_DEVICES", "all"}}, {}).index, 0);
  for (const char* devices : {"5", "GPU-1a2b", "void", "none", "0,1"})
    EXPECT_EQ(GpuIn({{"NVIDIA_VISIBLE_DEVICES", devices}}, {}).index, -1) << devices;
  EXPECT_EQ(GpuIn({{"SLURM_STEP_GPUS", "5"}, {"CUDA_VISIBLE_DEVICES", "0"}}, {}).index, -1);
  EXPECT_EQ(GpuIn({{"SLURM_JOB_GPUS", "4,5"}, {"CUDA_VISIBLE_DEVICES", "0,1"}}, {}).index, -1);
}

TEST(GpuIdentity, KnowsNothingWithoutADriver) {
  const GpuIdentity gpu = FindGpu(Environment);
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
