// SPDX-License-Identifier: Apache-2.0
// Ways to mark begin and end of a launch on its stream, as a profiler could do it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/gpu/cuda_api.h"

namespace nccl_exporter {

// One thread. The first Begin() makes events and memory on the thread's GPU; they live as long as
// the process. A refusal of CUDA ends the process.
class LaunchMarks {
 public:
  // `kind`: "timing" (events that time, around each launch), "sampled" (around one launch of 64),
  // "untimed" (events that do not time), "write" (the GPU writes a number into memory of the host)
  // or anything else for none.
  explicit LaunchMarks(const std::string& kind);

  void Begin(cudaStream_t stream);
  void End(cudaStream_t stream) { Mark(stream, 2 * next_ + 1); }

 private:
  static constexpr unsigned kPairs = 128;  // more than there are launches in flight
  using WriteValue = int (*)(cudaStream_t, uint64_t address, uint64_t value, unsigned flags);

  void Make();
  void Mark(cudaStream_t stream, unsigned place);

  enum class Kind { kNone, kEvents, kWrite } kind_ = Kind::kNone;
  unsigned every_ = 1;
  unsigned event_flags_ = 0;
  uint64_t launches_ = 0;
  unsigned next_ = 0;
  std::array<cudaEvent_t, 2 * kPairs> events_{};
  uint64_t* words_ = nullptr;
  WriteValue write_value_ = nullptr;
};

}  // namespace nccl_exporter
