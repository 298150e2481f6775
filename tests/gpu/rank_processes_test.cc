// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/rank_processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace nccl_exporter {
namespace {

bool Says(const char* variable, const char* value) {
  const char* found = getenv(variable);
  return value == nullptr ? found == nullptr : found != nullptr && strcmp(found, value) == 0;
}

TEST(RankProcessesTest, GiveEachRankAHostOfItsOwnAndTheLoopbackNetwork) {
  RankProcesses job;
  for (int rank = 0; rank < 2; ++rank) {
    job.Start({.rank = rank, .ranks = 2, .separate_hosts = true},
              {{"NCCL_PROFILER_PLUGIN", "none"}}, [rank] {
                const std::string host = "nccl-exporter-host-" + std::to_string(rank);
                return Says("NCCL_HOSTID", host.c_str()) && Says("NCCL_SOCKET_IFNAME", "lo") &&
                               Says("LOCAL_WORLD_SIZE", "2") &&
                               Says("RANK", std::to_string(rank).c_str()) &&
                               Says("NCCL_PROFILER_PLUGIN", "none")
                           ? 0
                           : 1;
              });
  }
  EXPECT_EQ(job.Wait(20), 0);
}

TEST(RankProcessesTest, LeaveTheNetworkAloneOnOneHost) {
  RankProcesses job;
  job.Start({.rank = 0, .ranks = 1, .separate_hosts = false}, {},
            [] { return Says("NCCL_HOSTID", nullptr) && Says("NCCL_NET", nullptr) ? 0 : 1; });
  EXPECT_EQ(job.Wait(20), 0);
}

TEST(RankProcessesTest, EndTogetherWhenOneFails) {
  RankProcesses job;
  job.Start({.rank = 0, .ranks = 2}, {}, [] { return pause(); });  // waits for its peer forever
  job.Start({.rank = 1, .ranks = 2}, {}, [] { return 3; });
  EXPECT_EQ(job.Wait(20), 1);
}

TEST(RankProcessesTest, EndWhenTheirTimeIsOver) {
  RankProcesses job;
  job.Start({.rank = 0, .ranks = 1}, {}, [] { return pause(); });
  EXPECT_EQ(job.Wait(0), 124);
}

}  // namespace
}  // namespace nccl_exporter
