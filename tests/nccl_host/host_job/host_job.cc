// SPDX-License-Identifier: Apache-2.0
// Plays a job on NCCL, whose library and CUDA's are found at run time. HOST_JOB_ACCOUNT=PREFIX:
// each process writes PREFIX.PID.json when all of its calls are made and its kernels have run,
// before it destroys its communicators.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/gpu/rank_processes.h"
#include "tests/nccl_host/host_job/player.h"

namespace nccl_exporter::host_job {
namespace {

constexpr int kLimitSeconds = 3600;

void InThreads(const std::vector<std::unique_ptr<Player>>& players,
               const std::function<void(Player&)>& what) {
  std::vector<std::thread> threads;
  for (const auto& player : players) {
    threads.emplace_back([&] {
      player->rank().UseDevice();
      what(*player);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One group over all ranks per iteration.
void PlayInOneThread(const JobOptions& options,
                     const std::vector<std::unique_ptr<Player>>& players) {
  const auto for_each = [&](const std::function<void(Player&)>& what) {
    for (const auto& player : players) {
      player->rank().UseDevice();
      what(*player);
    }
  };
  const auto in_group = [&](const std::function<void(Player&)>& what) {
    players[0]->rank().BeginGroup();
    for_each(what);
    players[0]->rank().EndGroup();
  };
  in_group([](Player& player) { player.Join(); });
  for (int i = 0; i < options.warm_up + options.iterations; ++i) {
    in_group([i](Player& player) { player.Iterate(i); });
    if (options.wait) for_each([](Player& player) { player.rank().Synchronize(); });
  }
  for_each([](Player& player) { player.rank().Synchronize(); });
}

// Plays these ranks of the job; in a process of their own if there are others.
int PlayRanks(const JobOptions& options, Board& board, int first, int last) {
  Account account;
  std::vector<std::unique_ptr<Player>> players;
  for (int rank = first; rank <= last; ++rank) {
    for (int thread = 0; thread < options.threads; ++thread)
      players.push_back(MakePlayer({options, board, account, rank, thread}));
  }
  if (options.one_thread) {
    PlayInOneThread(options, players);
  } else {
    InThreads(players, [&](Player& player) {
      if (!options.elastic_seed) player.Join();
      player.Play();
    });
  }
  if (const char* const prefix = getenv("HOST_JOB_ACCOUNT"); prefix != nullptr)
    account.Write(prefix + ("." + std::to_string(getpid())) + ".json");
  InThreads(players, [](Player& player) { player.End(); });
  return 0;
}

int PlayJob(const JobOptions& options) {
  Board& board = Board::Make();
  if (!options.processes) return PlayRanks(options, board, 0, options.ranks - 1);
  RankProcesses processes;
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::map<std::string, std::string> environment;
    if (options.ranks_per_node > 0)
      environment["NCCL_HOSTID"] = "host-" + std::to_string(rank / options.ranks_per_node);
    processes.Start({.rank = rank, .ranks = options.ranks, .separate_hosts = false}, environment,
                    [&, rank] { return PlayRanks(options, board, rank, rank); });
  }
  return processes.Wait(kLimitSeconds);
}

}  // namespace
}  // namespace nccl_exporter::host_job

int main(int argc, char** argv) {
  using namespace nccl_exporter::host_job;
  JobOptions options;
  std::vector<std::string> others;
  CLI::App app("Plays a job on NCCL.");
  app.add_option("-n", options.ranks, "ranks")->check(CLI::Range(1, 64));
  app.add_flag("-p", options.processes, "a process per rank");
  app.add_flag("-m", options.one_thread, "one thread for all ranks");
  app.add_option("-N", options.ranks_per_node, "ranks per node");
  app.add_option("-k", options.threads, "threads per rank, each with a communicator")
      ->check(CLI::Range(1, 16));
  app.add_option("-i", options.iterations, "iterations")->check(CLI::Range(0, 100'000));
  app.add_option("-w", options.warm_up, "iterations before them");
  app.add_option("-b", options.bytes, "bytes of an operation");
  app.add_option("-c", options.compute_us, "microseconds of compute before each iteration");
  app.add_option("-o", options.operations, "operations of an iteration")->delimiter(',');
  app.add_option("-O", others, "OP@K: iteration K makes another operation");
  app.add_option("-g", options.group, "times that the operations are made, in one group");
  app.add_flag("-s", options.split, "split communicators too");
  app.add_flag("-G", options.graph, "capture an iteration, and replay it");
  app.add_flag("-y", options.wait, "wait for each iteration");
  app.add_option("-R", options.drawn_seed, "a mix drawn from a seed");
  app.add_option("-E", options.elastic_seed, "an elastic mix drawn from a seed");
  app.add_flag("-S", options.shares, "with -E: communicators share resources");
  app.add_option("-A", options.after, "with -E: AllReduces afterwards, 50 ms apart");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& other : others) {
    const size_t at = other.find('@');
    if (at == std::string::npos) return 2;
    options.other_operations[std::stoi(other.substr(at + 1))] = other.substr(0, at);
  }
  return PlayJob(options);
}
