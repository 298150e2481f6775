// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tests/nccl_host/host_job/player.h"

namespace nccl_exporter::host_job {
namespace {

constexpr int kGraphs = 3;

// Mixes all operations, groups, communicators and graphs. Ranks draw the same of seed and thread.
class DrawnPlayer : public Player {
 public:
  explicit DrawnPlayer(const Seat& seat)
      : Player(seat), draw_(*options_.drawn_seed * 1000003 + 7919 * seat.thread) {
    const bool has_messages = draw_.Chance(70);
    has_graphs_ = draw_.Chance(45);
    has_roots_ = draw_.Chance(25);
    waits_percent_ = 50 * draw_.Below(3);
    if (draw_.Chance(70)) kinds_.push_back("broadcast");
    if (has_messages) kinds_.insert(kinds_.end(), {"sendrecv", "sendrecv"});
    if (has_messages && draw_.Chance(30)) kinds_.push_back("alltoall");
    if (has_roots_) kinds_.push_back("allgatherv");
  }

  void Play() override {
    if (draw_.Chance(40)) Split(1);
    if (options_.ranks >= 4 && draw_.Chance(50)) Split(2);
    std::vector<CapturedGraph> graphs;
    for (int i = 0; i < options_.warm_up + options_.iterations; ++i) {
      if (draw_.Chance(15)) rank_.Compute(20 + draw_.Below(300));
      const int what = draw_.Below(100);
      if (has_graphs_ && graphs.size() < kGraphs && what < 10) {
        const std::vector<Work> works = SomeWorks();
        Make(works);  // connections are made outside of the capture
        rank_.Synchronize();
        graphs.push_back(rank_.Capture([&] { Make(works); }));
      } else if (!graphs.empty() && what < 45) {
        const CapturedGraph& graph = graphs[draw_.Below(static_cast<int>(graphs.size()))];
        for (int k = 1 + draw_.Below(4); k > 0; --k) rank_.Replay(graph);
      } else {
        Make(SomeWorks());
      }
      if (draw_.Chance(waits_percent_)) rank_.Synchronize();
    }
    rank_.Synchronize();
    for (const CapturedGraph& graph : graphs)
      Require(CudaLibrary().GraphExecDestroy(graph.executable), "cudaGraphExecDestroy");
  }

 private:
  struct Work {
    int communicator;
    bool is_group;
    std::vector<Operation> operations;
  };

  std::vector<Work> SomeWorks() {
    std::vector<Work> works(1 + draw_.Below(3));
    for (Work& work : works) {
      work = {draw_.Below(static_cast<int>(communicators_.size())), draw_.Chance(35), {}};
      for (int k = work.is_group ? 1 + draw_.Below(5) : 1; k > 0; --k) {
        work.operations.push_back(draw_.AnOperation(kinds_, options_.bytes));
        if (has_roots_)
          work.operations.back().root = draw_.Below(communicators_[work.communicator].ranks);
      }
    }
    return works;
  }

  void Make(const std::vector<Work>& works) {
    for (const Work& work : works)
      MakeAll(work.operations, communicators_[work.communicator], work.is_group);
  }

  Draw draw_;
  bool has_graphs_, has_roots_;
  int waits_percent_;
  std::vector<std::string> kinds_{"allreduce", "allgather", "reducescatter", "reduce", "allreduce"};
};

}  // namespace

std::unique_ptr<Player> MakeDrawnPlayer(const Seat& seat) {
  return std::make_unique<DrawnPlayer>(seat);
}

}  // namespace nccl_exporter::host_job
