// SPDX-License-Identifier: Apache-2.0
// A real NCCL communicator of this process's GPU that counts what it is asked for, as ground truth.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/gpu/ground_truth.h"
#include "tests/gpu/nccl_api.h"

namespace nccl_exporter {

// Name and file by which the ranks of a communicator find each other.
struct Bootstrap {
  std::string name;     // the communicator's, no other's in the job: it identifies the ground truth
  std::string id_path;  // file in which rank 0 leaves NCCL's id for the others
  int rank = 0;
  int ranks = 1;
};

// One thread. Everything is enqueued on the GPU's stream; a refusal of NCCL ends the process.
class CountedCommunicator {
 public:
  CountedCommunicator(Gpu* gpu, const Bootstrap& bootstrap);
  ~CountedCommunicator();  // waits for the stream and destroys the communicator
  CountedCommunicator(const CountedCommunicator&) = delete;
  CountedCommunicator& operator=(const CountedCommunicator&) = delete;

  // The part of this communicator whose ranks give the same color, in the order of `key`.
  std::unique_ptr<CountedCommunicator> Split(int color, int key, const std::string& name);

  // Broadcast, Reduce, AllGather, ReduceScatter or AllReduce of a message of about this size: whole
  // elements, as many on each rank. Root is rank 0.
  void Collective(Function function, ncclDataType_t datatype, size_t message_bytes);
  // A send to the next rank and a receive from the previous one, in one group.
  void Exchange(ncclDataType_t datatype, size_t message_bytes);
  // Functions that NCCL makes of sends and receives: AlltoAll, Gather and Scatter, `count` elements
  // per pair. False where this NCCL has none.
  bool Spread(Function function, ncclDataType_t datatype, size_t count);

  // Captures what `calls` enqueues, and replays it.
  void CaptureAndReplay(const std::function<void()>& calls, int replays);
  // One collective, timed on the GPU by events around it.
  void TimedCollective(Function function, ncclDataType_t datatype, size_t message_bytes);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // As in the simulator's ground truth, without durations and without the id, which is NCCL's
  // secret.
  nlohmann::json ToJson() const;

 private:
  CountedCommunicator(Gpu* gpu, ncclComm_t communicator, std::string name, int rank, int ranks);

  Gpu* gpu_;
  std::string name_;  // NCCL keeps a pointer to it
  int rank_;
  int ranks_;
  GroundTruth truth_;
  ncclComm_t communicator_ = nullptr;
  std::vector<uint64_t> event_ns_;  // durations by CUDA events
};

}  // namespace nccl_exporter
