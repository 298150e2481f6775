// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl_host/host_job/player.h"

#include <algorithm>

namespace nccl_exporter::host_job {
namespace {

class PlainPlayer : public Player {
 public:
  using Player::Player;

  void Play() override {
    if (options_.split) Split(2);
    CapturedGraph graph;
    if (options_.graph) {
      Iterate(0);  // connections are made outside of the capture
      rank_.Synchronize();
      graph = rank_.Capture([this] { Iterate(0); });
    }
    for (int i = 0; i < options_.warm_up + options_.iterations; ++i) {
      if (options_.graph) {
        rank_.Replay(graph);
      } else {
        Iterate(i);
      }
      if (options_.wait) rank_.Synchronize();
    }
    rank_.Synchronize();
    if (options_.graph)
      Require(CudaLibrary().GraphExecDestroy(graph.executable), "cudaGraphExecDestroy");
  }

  void Iterate(int iteration) override {
    if (options_.compute_us > 0) rank_.Compute(options_.compute_us);
    std::vector<std::string> kinds = options_.operations;
    const auto other = options_.other_operations.find(iteration);
    if (other != options_.other_operations.end()) kinds = {other->second};
    std::vector<Operation> operations;
    for (const std::string& kind : kinds)
      operations.push_back({.kind = kind, .bytes = options_.bytes});
    if (options_.group > 0) rank_.BeginGroup();
    for (int k = 0; k < std::max(options_.group, 1); ++k) {
      if (kinds[0] == "mix") operations[0].kind = kMix[(iteration + k) % kMix.size()];
      MakeAll(operations, communicators_[0], false);
      if (communicators_.size() > 1)
        rank_.Make({kinds.size() > 1 ? "allreduce" : operations[0].kind, options_.bytes},
                   communicators_[1]);
    }
    if (options_.group > 0) rank_.EndGroup();
  }
};

}  // namespace

int Draw::Below(int bound) {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return static_cast<int>((z ^ z >> 31) % static_cast<uint64_t>(bound));
}

Operation Draw::AnOperation(const std::vector<std::string>& kinds, size_t largest_bytes) {
  Operation operation{.kind = kinds[Below(static_cast<int>(kinds.size()))]};
  operation.bytes = std::min(size_t{256} << 2 * Below(7), largest_bytes);
  if (Chance(30) && operation.bytes > 256) operation.bytes -= 4 * Below(40);
  return operation;
}

Player::Player(const Seat& seat)
    : seat_(seat), options_(seat.options), rank_(seat.rank, options_.bytes, &seat.account) {}

void Player::Join() { communicators_.push_back(JoinAll(seat_.thread, {})); }

Membership Player::JoinAll(int place, CommunicatorConfig config) {
  const Nccl& nccl = NcclLibrary();
  Membership all{.rank = seat_.rank, .ranks = options_.ranks};
  if (all.rank == 0) {
    UniqueId id;
    Require(nccl.GetUniqueId(&id), "ncclGetUniqueId");
    seat_.board.Leave(place, id);
  }
  const UniqueId id = seat_.board.Await(place);
  Require(nccl.CommInitRankConfig(&all.communicator, all.ranks, id, all.rank, &config),
          "ncclCommInitRankConfig");
  return all;
}

void Player::Split(int parts) {
  Membership part{.rank = seat_.rank / parts,
                  .ranks = (options_.ranks + parts - 1 - seat_.rank % parts) / parts};
  Require(NcclLibrary().CommSplit(communicators_[0].communicator, seat_.rank % parts, seat_.rank,
                                  &part.communicator, nullptr),
          "ncclCommSplit");
  communicators_.push_back(part);
}

void Player::MakeAll(const std::vector<Operation>& operations, const Membership& in,
                     bool in_group) {
  if (in_group) rank_.BeginGroup();
  for (const Operation& operation : operations) rank_.Make(operation, in);
  if (in_group) rank_.EndGroup();
}

void Player::End() {
  for (; !communicators_.empty(); communicators_.pop_back()) {
    Require(NcclLibrary().CommFinalize(communicators_.back().communicator), "ncclCommFinalize");
    Require(NcclLibrary().CommDestroy(communicators_.back().communicator), "ncclCommDestroy");
  }
}

std::unique_ptr<Player> MakePlayer(const Seat& seat) {
  if (seat.options.drawn_seed) return MakeDrawnPlayer(seat);
  if (seat.options.elastic_seed) return MakeElasticPlayer(seat);
  return std::make_unique<PlainPlayer>(seat);
}

}  // namespace nccl_exporter::host_job
