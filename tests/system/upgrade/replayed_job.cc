// SPDX-License-Identifier: Apache-2.0
#include "tests/system/upgrade/replayed_job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "tests/system/upgrade/recorded_job.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

// Words of a segment's header.
constexpr uint64_t kVersionAt = 0, kHeaderBytesAt = 16, kSlotBytesAt = 24, kSlotsAt = 32;
constexpr uint64_t kStartRealtimeAt = 64, kStartMonotonicAt = 72;
constexpr uint64_t kLossesAt = 256, kLosses = 64;
// Words of a slot.
constexpr uint64_t kStateAt = 0, kCreatedRealtimeAt = 88, kCreatedMonotonicAt = 96;
constexpr uint64_t kFunctionsAt = 384, kFunctions = 11, kFunctionBytes = 3904;
constexpr uint64_t kInFlightAt = 43328, kInFlightEntries = 512, kInFlightBytes = 64;
constexpr uint64_t kStateLive = 2;
// Words of a function's block. Threads that start operations write it up to kTimedAt.
constexpr uint64_t kLastStartAt = 8, kTimedAt = 192, kLastCompletionAt = 392;

uint64_t Now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Every number below `value` times `factor`.
void Multiply(json& value, uint64_t factor) {
  if (value.is_structured()) {
    for (json& part : value) Multiply(part, factor);
  } else if (value.is_number_float()) {
    value = value.get<double>() * static_cast<double>(factor);
  } else if (value.is_number()) {
    value = value.get<uint64_t>() * factor;
  }
}

}  // namespace

class ReplayedSegment {
 public:
  ReplayedSegment(const std::string& recorded, const std::string& path)
      : bytes_(recorded.size()), file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    struct flock whole {
      .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0
    };
    EXPECT_EQ(ftruncate(file_, static_cast<off_t>(bytes_)), 0) << path;
    EXPECT_EQ(fcntl(file_, F_SETLK, &whole), 0) << path;
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    EXPECT_NE(memory, MAP_FAILED) << path;
    base_ = static_cast<char*>(memory);
    Fill(recorded);
  }
  ReplayedSegment(const ReplayedSegment&) = delete;
  ReplayedSegment& operator=(const ReplayedSegment&) = delete;
  ~ReplayedSegment() {
    munmap(base_, bytes_);
    close(file_);
  }

  // All of its operations once. One of each function is in flight meanwhile.
  void PlayRound() {
    for (const Count& loss : losses_) Add(loss);
    for (const Block& block : blocks_) {
      const uint64_t ticket = ++tickets_;
      const uint64_t entry = block.slot + kInFlightAt + ticket % kInFlightEntries * kInFlightBytes;
      Store(entry + 8, block.function);
      Store(entry + 16, ticket);
      Store(entry + 24, Now(CLOCK_MONOTONIC));
      Store(entry, ticket + 1);
      Store(block.at + kLastStartAt, Now(CLOCK_MONOTONIC));
      for (const Count& count : block.started) Add(count);
      for (const Count& count : block.completed) Add(count);
      Store(block.at + kLastCompletionAt, Now(CLOCK_MONOTONIC));
      Store(entry, 0);
    }
  }

 private:
  struct Count {
    uint64_t at;
    uint64_t recorded;
  };
  struct Block {
    uint64_t slot;
    uint64_t at;
    uint64_t function;
    std::vector<Count> started;
    std::vector<Count> completed;
  };

  std::atomic<uint64_t>& Word(uint64_t at) {
    return *reinterpret_cast<std::atomic<uint64_t>*>(base_ + at);
  }
  void Store(uint64_t at, uint64_t value) { Word(at).store(value, std::memory_order_release); }
  void Add(const Count& count) {
    Word(count.at).fetch_add(count.recorded, std::memory_order_relaxed);
  }
  // Sets the word to zero. Nothing if it has not been used.
  void Take(uint64_t at, std::vector<Count>& counts) {
    if (const uint64_t recorded = Word(at).exchange(0); recorded != 0)
      counts.push_back({at, recorded});
  }

  // The recorded segment without its counts, as of now. Its version is written last.
  void Fill(const std::string& recorded) {
    std::memcpy(base_ + sizeof(uint64_t), recorded.data() + sizeof(uint64_t),
                bytes_ - sizeof(uint64_t));
    Store(kStartRealtimeAt, Now(CLOCK_REALTIME));
    Store(kStartMonotonicAt, Now(CLOCK_MONOTONIC));
    for (uint64_t i = 0; i < kLosses; ++i) Take(kLossesAt + 8 * i, losses_);
    for (uint64_t i = 0; i < Word(kSlotsAt); ++i) {
      const uint64_t slot = Word(kHeaderBytesAt) + i * Word(kSlotBytesAt);
      if ((Word(slot + kStateAt) & 0xff) == kStateLive) FillSlot(slot);
    }
    uint64_t version = 0;
    std::memcpy(&version, recorded.data(), sizeof(version));
    Store(kVersionAt, version);
  }
  void FillSlot(uint64_t slot) {
    Store(slot + kCreatedRealtimeAt, Now(CLOCK_REALTIME));
    Store(slot + kCreatedMonotonicAt, Now(CLOCK_MONOTONIC));
    const uint64_t functions_end = slot + kFunctionsAt + kFunctions * kFunctionBytes;
    for (uint64_t function = 0; function < kFunctions; ++function) {
      Block block{.slot = slot,
                  .at = slot + kFunctionsAt + function * kFunctionBytes,
                  .function = function,
                  .started = {},
                  .completed = {}};
      for (uint64_t offset = 0; offset < kFunctionBytes; offset += 8)
        Take(block.at + offset, offset < kTimedAt ? block.started : block.completed);
      for (std::vector<Count>* counts : {&block.started, &block.completed}) {
        std::erase_if(*counts, [&](const Count& count) {
          return count.at == block.at + kLastStartAt || count.at == block.at + kLastCompletionAt;
        });
      }
      if (!block.started.empty()) blocks_.push_back(std::move(block));
    }
    // Entries in flight and completions are of another boot.
    std::memset(base_ + functions_end, 0, slot + Word(kSlotBytesAt) - functions_end);
  }

  const size_t bytes_;
  const int file_;  // the lock goes with it
  char* base_ = nullptr;
  std::vector<Count> losses_;
  std::vector<Block> blocks_;
  uint64_t tickets_ = 0;
};

ReplayedJob::ReplayedJob(const std::string& job, const std::string& directory)
    : recorded_truth_(TruthOf(job)) {
  for (const std::string& recorded : RecordedSegmentsOf(job)) {
    const std::string path = directory + "/" + std::to_string(segments_.size()) + ".seg";
    segments_.push_back(std::make_unique<ReplayedSegment>(recorded, path));
  }
  thread_ = std::thread(&ReplayedJob::Play, this);
}

ReplayedJob::~ReplayedJob() { Stop(); }

void ReplayedJob::Stop() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
}

void ReplayedJob::Play() {
  // Thousands of operations a second, and time for the daemon on a machine with one core.
  constexpr std::chrono::milliseconds kPause(1);
  while (!stops_) {
    for (const auto& segment : segments_) segment->PlayRound();
    ++rounds_;
    std::this_thread::sleep_for(kPause);
  }
}

json ReplayedJob::Truth() const {
  json truth = recorded_truth_;
  for (json& rank : truth["ranks"]) {
    for (json& communicator : rank["communicators"]) Multiply(communicator["functions"], rounds_);
  }
  return truth;
}

}  // namespace nccl_exporter
