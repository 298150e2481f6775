// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/rank_processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace nccl_exporter {
namespace {

constexpr long kPollNs = 20'000'000;
constexpr int kNotDone = 124;  // as by timeout(1)

void SetPlacement(const RankPlacement& placement) {
  const std::string rank = std::to_string(placement.rank), ranks = std::to_string(placement.ranks);
  setenv("RANK", rank.c_str(), 1);
  setenv("LOCAL_RANK", rank.c_str(), 1);
  setenv("WORLD_SIZE", ranks.c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", ranks.c_str(), 1);
  if (!placement.separate_hosts) return;
  setenv("NCCL_HOSTID", ("nccl-exporter-host-" + rank).c_str(), 1);
  setenv("NCCL_NET", "Socket", 0);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  setenv("NCCL_MNNVL_ENABLE", "0", 0);  // NVLink across nodes would find that it is one node
}

}  // namespace

RankProcesses::~RankProcesses() { KillAll(); }

void RankProcesses::Start(const RankPlacement& placement,
                          const std::map<std::string, std::string>& environment,
                          const std::function<int()>& body) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    SetPlacement(placement);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    const int code = body();
    fflush(nullptr);
    _exit(code);
  }
  if (child < 0) {
    perror("fork");
    KillAll();
    exit(1);
  }
  running_.push_back(child);
}

int RankProcesses::Wait(int limit_seconds, int may_be_killed) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const time_t deadline = now.tv_sec + limit_seconds;
  while (!running_.empty()) {
    for (size_t i = 0; i < running_.size(); ++i) {
      int status = 0;
      if (waitpid(running_[i], &status, WNOHANG) != running_[i]) continue;
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(i--));
      if (WIFSIGNALED(status) && may_be_killed-- > 0) continue;
      if (status != 0) {
        KillAll();
        return 1;
      }
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec >= deadline) {
      fprintf(stderr, "not done after %d s: killed\n", limit_seconds);
      KillAll();
      return kNotDone;
    }
    const timespec pause{0, kPollNs};
    nanosleep(&pause, nullptr);
  }
  return 0;
}

void RankProcesses::KillAll() {
  for (const pid_t process : running_) kill(process, SIGKILL);
  for (const pid_t process : running_) waitpid(process, nullptr, 0);
  running_.clear();
}

}  // namespace nccl_exporter
