// SPDX-License-Identifier: Apache-2.0
// A job that runs one AllReduce after the other. One rank may stay away from the 20th until the
// file `resume` appears, or be killed there; the others then abort when the file appears.
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "tests/gpu/gpu.h"
#include "tests/gpu/id_file.h"
#include "tests/gpu/programs.h"
#include "tests/gpu/rank_processes.h"
#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr long kPollNs = 1'000'000;
constexpr int kBeforeFault = 20;

struct LoopShape {
  int ranks;
  int faulty_rank;  // -1: none
  bool is_killed;   // else it stays away
  size_t bytes;
  int operations;
  long pause_us;  // after each
  std::string directory;
};

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void Sleep(long ns) {
  const timespec pause{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&pause, nullptr);
}

class LoopRank {
 public:
  LoopRank(const LoopShape& shape, int rank)
      : shape_(shape), rank_(rank), gpu_(rank, shape.bytes), resume_(shape.directory + "/resume") {
    const ncclUniqueId id = MeetBy(shape.directory + "/loop.id", rank);
    Require(ncclCommInitRank(&communicator_, shape.ranks, id, rank), "ncclCommInitRank");
  }

  void Run() {
    for (int operation = 0; operation < shape_.operations; ++operation) {
      if (operation == kBeforeFault && rank_ == shape_.faulty_rank) Fail();
      if (const auto aborted = Operate()) return Report("aborted", *aborted);
      Sleep(shape_.pause_us * 1000);
    }
    const double start = Now();
    Require(ncclCommDestroy(communicator_), "ncclCommDestroy");
    Report("destroyed", Now() - start);
  }

 private:
  void Fail() const {
    const std::string path = shape_.directory + "/fault";
    Require(creat(path.c_str(), 0600) >= 0, path.c_str());
    if (shape_.is_killed) raise(SIGKILL);
    while (access(resume_.c_str(), F_OK) != 0) Sleep(kPollNs);
  }

  // Seconds that ncclCommAbort took, if the communicator was aborted.
  std::optional<double> Operate() {
    Require(ncclAllReduce(gpu_.send(), gpu_.receive(), shape_.bytes / sizeof(float), ncclFloat32,
                          ncclSum, communicator_, gpu_.stream()),
            "ncclAllReduce");
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(gpu_.stream())) == cudaErrorNotReady) {
      if (shape_.is_killed && access(resume_.c_str(), F_OK) == 0) {
        const double start = Now();
        Require(ncclCommAbort(communicator_), "ncclCommAbort");
        return Now() - start;
      }
      Sleep(kPollNs / 20);
    }
    Require(state, "cudaStreamQuery");
    return std::nullopt;
  }

  void Report(const char* end, double seconds) const {
    Print({{"rank", rank_}, {"pid", getpid()}, {"end", end}, {"destroy_seconds", seconds}});
  }

  const LoopShape& shape_;
  int rank_;
  Gpu gpu_;
  std::string resume_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

int RunLoop(const nlohmann::json& options) {
  const LoopShape shape{.ranks = options["ranks"],
                        .faulty_rank = options["faulty_rank"],
                        .is_killed = options["is_killed"],
                        .bytes = options["bytes"],
                        .operations = options["operations"],
                        .pause_us = options["pause_us"],
                        .directory = options["directory"]};
  RankProcesses processes;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    processes.Start({.rank = rank, .ranks = shape.ranks, .separate_hosts = !options["one_host"]},
                    {}, [&shape, rank] {
                      NameRequirements(rank);
                      LoopRank(shape, rank).Run();
                      return 0;
                    });
  }
  return processes.Wait(options["limit_seconds"], shape.is_killed ? 1 : 0);
}

}  // namespace nccl_exporter
