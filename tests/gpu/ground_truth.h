// SPDX-License-Identifier: Apache-2.0
// Ground truth of one communicator, by what the program asked of NCCL: what the plugin must have
// counted, by the definitions of proto/README.md and what the release announces. Durations are not
// in it.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "proto/collective.h"
#include "tests/gpu/announcements.h"

namespace nccl_exporter {

// One thread.
class GroundTruth {
 public:
  GroundTruth(Announcements announcements, uint32_t ranks)
      : announcements_(announcements), ranks_(ranks) {}

  // A call of a collective or of Send or Recv, with NCCL's own `count`.
  void Call(Function function, uint64_t count, uint32_t element_bytes);

  // Calls made from here on are captured: nothing is handed to the GPU until Replay().
  void BeginCapture();
  void EndCapture() { is_capturing_ = false; }
  void Replay();  // of the last captured graph

  // {"AllReduce": {"calls": n, "sizes": {"4096": {"operations": n, "bytes": n}}}}, without
  // functions never called.
  nlohmann::json ToJson() const;

 private:
  struct Counts {
    uint64_t calls = 0;
    std::array<uint64_t, kSizeClassCount> operations{};
    std::array<uint64_t, kSizeClassCount> bytes{};
  };
  struct Operation {
    Function function;
    uint64_t message_bytes;
  };

  void Count(const Operation& operation);

  Announcements announcements_;
  uint32_t ranks_;
  bool is_capturing_ = false;
  std::vector<Operation> captured_;
  std::array<Counts, kFunctionCount> functions_{};
};

}  // namespace nccl_exporter
