// SPDX-License-Identifier: Apache-2.0
// A job's processes, one a rank, on this machine: started, waited for, and ended together when one
// of them fails.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace nccl_exporter {

struct RankPlacement {
  int rank = 0;
  int ranks = 1;
  // NCCL takes the ranks for different nodes: they meet over the loopback network and may share a
  // GPU.
  bool separate_hosts = true;
};

class RankProcesses {
 public:
  RankProcesses() = default;
  ~RankProcesses();  // kills what still runs
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Forks; the child runs `body` and ends with its result. Call it before this process touches CUDA
  // or NCCL, for neither survives a fork. `environment` comes on top of what makes the placement;
  // what the user has set of NCCL's choice of network stays.
  void Start(const RankPlacement& placement, const std::map<std::string, std::string>& environment,
             const std::function<int()>& body);

  // Waits for all. When one fails, or `limit_seconds` are over, the others are killed, for they
  // would wait forever. Returns the exit code of a program: 0 if every process ended with 0, 124
  // after the limit, and 1 otherwise. So many processes as `may_be_killed` may end by a signal, and
  // count as ended.
  int Wait(int limit_seconds, int may_be_killed = 0);

 private:
  void KillAll();

  std::vector<pid_t> running_;
};

}  // namespace nccl_exporter
