// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/workload.h"

#include <algorithm>
#include <array>
#include <memory>

#include "tests/gpu/counted_communicator.h"
#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr std::array kCollectives{Function::kBroadcast, Function::kReduce, Function::kAllGather,
                                  Function::kReduceScatter, Function::kAllReduce};
constexpr std::array kDatatypeTour{ncclFloat32,  ncclInt8,  ncclUint8,  ncclFloat16,
                                   ncclBfloat16, ncclInt64, ncclFloat64};
// One or more in each size class of the metrics, and both of NCCL's protocols for small messages.
constexpr std::array<size_t, 9> kSizes{8,       1000,    16 << 10, 100'000,  512 << 10,
                                       1 << 20, 4 << 20, 32 << 20, 256 << 20};
constexpr size_t kSmall = 64 << 10;
constexpr size_t kTimedBytes = 64 << 20;  // so large that the launch does not show in its duration
constexpr int kTimedOperations = 15;
constexpr int kShortLives = 8;
constexpr int kReplays = 20;

class Workload {
 public:
  explicit Workload(const WorkloadShape& shape)
      : shape_(shape),
        gpu_(shape.rank, std::max(shape.largest_bytes, kSmall * static_cast<size_t>(shape.ranks))) {
  }

  nlohmann::json Run() {
    Collectives();
    Groups();
    Pairs();
    Splits();
    Graph();
    ShortLives();
    Timed();
    Spreads();  // last: on NCCL 2.26 to 2.30 a send to oneself puts a communicator's GPU time
                // stamps out of step
    return std::move(truths_);
  }

 private:
  using Communicator = std::unique_ptr<CountedCommunicator>;

  Communicator Create(const std::string& name) {
    return std::make_unique<CountedCommunicator>(
        &gpu_, Bootstrap{name, shape_.directory + "/" + name + ".id", shape_.rank, shape_.ranks});
  }
  void Close(Communicator communicator) { truths_.push_back(communicator->ToJson()); }
  size_t AtMost(size_t bytes) const { return std::min(bytes, shape_.largest_bytes); }

  void Collectives() {
    Communicator all = Create("collectives");
    size_t tour = 0;
    for (const size_t bytes : kSizes) {
      if (bytes > shape_.largest_bytes) break;
      for (const Function function : kCollectives) {
        for (int i = 0; i < (bytes <= kSmall ? 3 : 1); ++i) {
          all->Collective(function, kDatatypeTour[tour++ % kDatatypeTour.size()], bytes);
        }
      }
      gpu_.Synchronize();
    }
    Close(std::move(all));
  }

  // Aggregated operations, and a group within the group, at whose end NCCL believes that the outer
  // one is over.
  void Groups() {
    Communicator all = Create("groups");
    for (int round = 0; round < 5; ++round) {
      Require(ncclGroupStart(), "ncclGroupStart");
      for (size_t i = 0; i < 8; ++i)
        all->Collective(Function::kAllReduce, ncclFloat32, AtMost(kSmall << i % 3));
      all->Collective(Function::kAllGather, ncclFloat16, kSmall);
      Require(ncclGroupStart(), "ncclGroupStart");
      all->Collective(Function::kReduceScatter, ncclFloat32, kSmall);
      Require(ncclGroupEnd(), "ncclGroupEnd");
      all->Collective(Function::kAllReduce, ncclInt32, kSmall);
      Require(ncclGroupEnd(), "ncclGroupEnd");
      gpu_.Synchronize();
    }
    Close(std::move(all));
  }

  void Pairs() {
    Communicator all = Create("pairs");
    for (const size_t bytes : kSizes) {
      if (bytes > AtMost(32 << 20)) break;
      for (int i = 0; i < 3; ++i) all->Exchange(ncclInt8, bytes);
      gpu_.Synchronize();
    }
    Close(std::move(all));
  }

  // A part of every second rank, which with two ranks is one rank alone and announces nothing; and
  // all ranks in reverse.
  void Splits() {
    Communicator all = Create("split-parent");
    all->Collective(Function::kAllReduce, ncclFloat32, kSmall);
    Communicator half =
        all->Split(shape_.rank % 2, shape_.rank, "split-half-" + std::to_string(shape_.rank % 2));
    Communicator reversed = all->Split(0, -shape_.rank, "split-reversed");
    for (int i = 0; i < 3; ++i) {
      half->Collective(Function::kAllReduce, ncclFloat32, kSmall);
      reversed->Collective(Function::kAllGather, ncclFloat32, kSmall);
      gpu_.Synchronize();
    }
    const nlohmann::json half_truth = half->ToJson(), reversed_truth = reversed->ToJson();
    half.reset();
    reversed.reset();
    Close(std::move(all));
    truths_.push_back(half_truth);
    truths_.push_back(reversed_truth);
  }

  // Replays only, after the capture: eager operations in between put NCCL's time stamps out of
  // step.
  void Graph() {
    Communicator all = Create("graph");
    all->Collective(Function::kAllReduce, ncclFloat32, kSmall);
    all->Exchange(ncclFloat32, kSmall);
    gpu_.Synchronize();
    all->CaptureAndReplay(
        [&] {
          all->Collective(Function::kAllReduce, ncclFloat32, AtMost(1 << 20));
          all->Collective(Function::kAllGather, ncclFloat16, kSmall);
          all->Exchange(ncclFloat32, kSmall);
        },
        kReplays);
    Close(std::move(all));
  }

  void ShortLives() {
    for (int life = 0; life < kShortLives; ++life) {
      Communicator all = Create("short-life-" + std::to_string(life));
      for (int i = 0; i <= life; ++i) all->Collective(Function::kAllReduce, ncclFloat32, kSmall);
      Close(std::move(all));
    }
  }

  void Timed() {
    Communicator all = Create("timed");
    for (int i = 0; i < 3; ++i)
      all->Collective(Function::kReduce, ncclFloat32, kSmall);  // connections are made
    gpu_.Synchronize();
    for (int i = 0; i < kTimedOperations; ++i) {
      all->TimedCollective(Function::kAllReduce, ncclFloat32, AtMost(kTimedBytes));
    }
    Close(std::move(all));
  }

  void Spreads() {
    Communicator all = Create("spreads");
    for (const Function function : {Function::kAlltoAll, Function::kGather, Function::kScatter}) {
      for (int i = 0; i < 3; ++i) {
        if (!all->Spread(function, ncclFloat32, kSmall / 4)) break;
        gpu_.Synchronize();
      }
    }
    Close(std::move(all));
  }

  const WorkloadShape& shape_;
  Gpu gpu_;
  nlohmann::json truths_ = nlohmann::json::array();
};

}  // namespace

nlohmann::json RunWorkload(const WorkloadShape& shape) { return Workload(shape).Run(); }

}  // namespace nccl_exporter
