// SPDX-License-Identifier: Apache-2.0
// Players: what one rank calls in a job. A thread of its own each, unless one thread drives all.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/nccl_host/host_job/board.h"
#include "tests/nccl_host/host_job/rank.h"

namespace nccl_exporter::host_job {

struct JobOptions {
  int ranks = 4, ranks_per_node = 0, threads = 1, iterations = 100, warm_up = 0, group = 0;
  size_t bytes = 1 << 20;
  bool processes = false, one_thread = false, split = false, graph = false, wait = false;
  double compute_us = 0;
  std::vector<std::string> operations{"allreduce"};
  std::map<int, std::string> other_operations;  // by iteration
  std::optional<uint64_t> drawn_seed, elastic_seed;
  bool shares = false;
  int after = 0;  // AllReduces behind an elastic mix
};

// Numbers that are the same for all ranks: splitmix64.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  int Below(int bound);
  bool Chance(int percent) { return Below(100) < percent; }
  // One of these kinds, small, of whole elements.
  Operation AnOperation(const std::vector<std::string>& kinds, size_t largest_bytes);

 private:
  uint64_t state_;
};

struct Seat {
  const JobOptions& options;
  Board& board;
  Account& account;
  int rank, thread;
};

class Player {
 public:
  explicit Player(const Seat& seat);
  virtual ~Player() = default;
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  void Join();  // the communicator of all ranks
  virtual void Play() = 0;
  // Plays one iteration; for one thread that drives all ranks.
  virtual void Iterate(int) {}
  virtual void End();  // destroys the communicators

  Rank& rank() { return rank_; }

 protected:
  Membership JoinAll(int place, CommunicatorConfig config);
  void Split(int parts);  // of all ranks: one communicator per remainder
  void MakeAll(const std::vector<Operation>& operations, const Membership& in, bool in_group);

  const Seat seat_;
  const JobOptions& options_;
  Rank rank_;
  std::vector<Membership> communicators_;  // that of all ranks is the first
};

// As the options say; drawn from a seed with graphs; drawn from a seed with communicators that
// come, shrink, grow and are aborted.
std::unique_ptr<Player> MakePlayer(const Seat& seat);
std::unique_ptr<Player> MakeDrawnPlayer(const Seat& seat);
std::unique_ptr<Player> MakeElasticPlayer(const Seat& seat);

}  // namespace nccl_exporter::host_job
