// SPDX-License-Identifier: Apache-2.0
// The communicators of one rank: made when a step first needs them, made again every so many steps,
// kept for the ground truth.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulator/loader/profiler_plugin.h"
#include "simulator/nccl/live_communicator.h"
#include "simulator/release/play_options.h"

namespace nccl_exporter::sim {

// Called once for each communicator that is made. The sink outlives the set.
using SinkMaker = std::function<GroundTruthSink&(const Communicator& shape)>;

class CommunicatorSet {
 public:
  CommunicatorSet(const PlayOptions& options, const std::vector<Communicator>& communicators,
                  ProfilerPlugin& plugin, int global_rank, std::function<void()> use_gpu,
                  SinkMaker make_sink)
      : options_(options),
        communicators_(communicators),
        plugin_(plugin),
        global_rank_(global_rank),
        use_gpu_(std::move(use_gpu)),
        make_sink_(std::move(make_sink)) {}

  // Whether UpdateTo would finalize any communicator; all their events must have been delivered
  // before.
  bool IsRecreatedAt(int64_t step) const;
  // Finalizes what is old and makes what the step needs.
  void UpdateTo(int64_t step, int64_t now_ns);
  // One whose destruction would hang is not finalized, but reported on stderr and kept.
  void FinalizeAll(int64_t now_ns);
  bool HasHung() const { return has_hung_; }

  LiveCommunicator& At(int communicator) { return *live_.at(communicator); }
  // In the order of their making, the finalized ones included.
  const std::vector<std::unique_ptr<LiveCommunicator>>& All() const { return all_; }

 private:
  int64_t GenerationOf(int64_t step) const {
    return options_.recreate_every > 0 ? step / options_.recreate_every : 0;
  }
  void Make(int number, int64_t now_ns);
  bool Hangs(LiveCommunicator& communicator);

  const PlayOptions& options_;
  const std::vector<Communicator>& communicators_;
  ProfilerPlugin& plugin_;
  const int global_rank_;
  const std::function<void()> use_gpu_;  // a communicator is made for the current GPU
  const SinkMaker make_sink_;
  int64_t generation_ = 0;
  bool has_hung_ = false;
  std::map<int, LiveCommunicator*> live_;
  std::vector<std::unique_ptr<LiveCommunicator>> all_;
};

// Why the communicator's destruction would hang, for people.
std::string DestroyHangText(const LiveCommunicator& communicator, int global_rank);

}  // namespace nccl_exporter::sim
