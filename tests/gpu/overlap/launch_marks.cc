// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/overlap/launch_marks.h"

#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr unsigned kSampled = 64;
constexpr int kCuda12 = 12000;  // whose form of the driver's function is asked for

}  // namespace

LaunchMarks::LaunchMarks(const std::string& kind) {
  if (kind == "write") kind_ = Kind::kWrite;
  if (kind == "timing" || kind == "sampled" || kind == "untimed") kind_ = Kind::kEvents;
  if (kind == "sampled") every_ = kSampled;
  if (kind == "untimed") event_flags_ = cudaEventDisableTiming;
}

void LaunchMarks::Make() {
  if (kind_ == Kind::kEvents) {
    for (cudaEvent_t& event : events_)
      Require(cudaEventCreateWithFlags(&event, event_flags_), "cudaEventCreate");
    return;
  }
  void *memory = nullptr, *function = nullptr;
  Require(cudaHostAlloc(&memory, events_.size() * sizeof(uint64_t), cudaHostAllocMapped),
          "cudaHostAlloc");
  Require(cuGetProcAddress_v2("cuStreamWriteValue64", &function, kCuda12, 0, nullptr) == 0 &&
              function != nullptr,
          "cuStreamWriteValue64");
  words_ = static_cast<uint64_t*>(memory);
  write_value_ = reinterpret_cast<WriteValue>(function);
}

void LaunchMarks::Begin(cudaStream_t stream) {
  if (kind_ == Kind::kNone) return;
  if (launches_++ == 0) Make();
  next_ = (next_ + 1) % kPairs;
  Mark(stream, 2 * next_);
}

void LaunchMarks::Mark(cudaStream_t stream, unsigned place) {
  if (kind_ == Kind::kNone || launches_ % every_ != 0) return;
  if (kind_ == Kind::kEvents) {
    Require(cudaEventRecord(events_[place], stream), "cudaEventRecord");
  } else {
    const auto address = reinterpret_cast<uint64_t>(words_ + place);
    Require(write_value_(stream, address, launches_, 0) == 0, "cuStreamWriteValue64");
  }
}

}  // namespace nccl_exporter
