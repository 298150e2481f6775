// SPDX-License-Identifier: Apache-2.0
// The requester's side of a trace file, which this process has as a training process would.
#include "collector/trace/trace_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

namespace nccl_exporter::collector {
namespace {

using trace_ring::Answer;
using trace_ring::Chunk;
using trace_ring::File;
using trace_ring::Level;
using trace_ring::Role;

constexpr uint32_t kSlot = 7;
constexpr uint64_t kSession = 3;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A file as a plugin makes it. Each has a time of its own, so that those of other tests differ.
class TrainingProcess {
 public:
  explicit TrainingProcess(int seals = kSeals, off_t bytes = sizeof(File)) {
    static uint64_t latest_ns = 0;
    start_ns_ = ++latest_ns;
    descriptor_ = ::memfd_create(trace_ring::kFileName, MFD_ALLOW_SEALING | MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(descriptor_, bytes), 0);
    EXPECT_EQ(::fcntl(descriptor_, F_ADD_SEALS, seals), 0);
    file_ = static_cast<File*>(
        ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0));
    if (bytes < static_cast<off_t>(sizeof(trace_ring::ControlPage))) return;
    file_->control.magic = trace_ring::kMagic;
    file_->control.owner_start_ns = start_ns_;
    file_->control.file_bytes = sizeof(File);
    file_->control.version = trace_ring::kVersion;
  }
  ~TrainingProcess() {
    ::munmap(file_, sizeof(File));
    ::close(descriptor_);
  }
  TrainingProcess(const TrainingProcess&) = delete;
  TrainingProcess& operator=(const TrainingProcess&) = delete;

  File* operator->() const { return file_; }
  int descriptor() const { return descriptor_; }
  int64_t start_ns() const { return static_cast<int64_t>(start_ns_); }
  void Take() {
    file_->control.answer = static_cast<uint64_t>(Answer::kTaken);
    file_->control.session = kSession;
    file_->control.answered = file_->control.generation.load();
  }
  // Channels whose starts are 1, 2 and so on; 0 of them: the chunk is free.
  Chunk& Fill(size_t chunk, size_t records) {
    Chunk& filled = file_->chunks[chunk];
    filled.owner = trace_ring::OwnerWord(kSession, kSlot, Role::kProgress);
    for (uint64_t i = 0; i < records; ++i) {
      const auto record = trace_ring::MakeChannel(2, i, i + 1, i + 9);
      for (size_t word = 0; word < record.size(); ++word)
        filled.words[i * record.size() + word] = record[word];
    }
    return filled;
  }

 private:
  uint64_t start_ns_ = 0;
  int descriptor_ = -1;
  File* file_ = nullptr;
};

std::unique_ptr<TraceMemory> Open(const TrainingProcess& process, std::string& fault) {
  return TraceMemory::Open(::getpid(), process.start_ns(), fault);
}

std::unique_ptr<TraceMemory> AskFor(TrainingProcess& process, Level level) {
  std::string fault;
  std::unique_ptr<TraceMemory> memory = Open(process, fault);
  EXPECT_EQ(fault, "");
  EXPECT_TRUE(memory->Ask(
      {.level = level, .begin_realtime_ns = 5, .end_realtime_ns = 6, .communicator = {}}, fault));
  process.Take();
  return memory;
}

std::vector<uint64_t> StartsIn(TraceMemory& memory) {
  std::vector<uint64_t> starts;
  memory.Read([&](uint32_t slot, std::span<const uint64_t> record) {
    EXPECT_EQ(slot, kSlot);
    starts.push_back(record[1]);
  });
  return starts;
}

// Regression: a job could make root open any file by a link whose text is that of a trace file.
TEST(TraceMemoryTest, OpensNothingThatItHasNotLookedAt) {
  const TrainingProcess other(kSeals, 4096);
  const int events = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  const std::string path = "/proc/self/fd/" + std::to_string(other.descriptor());
  ASSERT_GE(::inotify_add_watch(events, path.c_str(), IN_CLOSE_WRITE), 0);
  std::string fault;
  EXPECT_EQ(Open(other, fault), nullptr);
  EXPECT_EQ(fault, "its trace file is of another version");
  char event[1000];
  EXPECT_LT(::read(events, event, sizeof event), 0) << "it was opened to be written";
  ::close(events);
}

TEST(TraceMemoryTest, AsksAndEndsTheRequestWithItself) {
  TrainingProcess process;
  std::string fault;
  {
    const std::unique_ptr<TraceMemory> memory = Open(process, fault);
    ASSERT_NE(memory, nullptr) << fault;
    EXPECT_EQ(memory->answer(), std::nullopt);
    ASSERT_TRUE(memory->Ask({.level = Level::kChannels,
                             .begin_realtime_ns = 5,
                             .end_realtime_ns = 6,
                             .communicator = 77},
                            fault));
    EXPECT_EQ(process->control.generation, 1u);
    EXPECT_EQ(process->control.level, static_cast<uint64_t>(Level::kChannels));
    EXPECT_EQ(process->control.begin_realtime_ns, 5u);
    EXPECT_EQ(process->control.end_realtime_ns, 6u);
    EXPECT_EQ(process->control.has_communicator, 1u);
    EXPECT_EQ(process->control.communicator_id, 77u);
    EXPECT_EQ(memory->answer(), std::nullopt) << "it has not been answered";
    process.Take();
    EXPECT_EQ(memory->answer(), Answer::kTaken);
  }
  EXPECT_EQ(process->control.generation, 2u);
  EXPECT_EQ(process->control.level, static_cast<uint64_t>(Level::kNone));
}

TEST(TraceMemoryTest, OneRequesterAtATime) {
  TrainingProcess process;
  std::string fault;
  std::unique_ptr<TraceMemory> first = Open(process, fault);
  EXPECT_EQ(Open(process, fault), nullptr);
  EXPECT_EQ(fault, "another request is running");
  first.reset();
  EXPECT_NE(Open(process, fault), nullptr);
}

// Its writer may be anybody, and root maps it.
TEST(TraceMemoryTest, TakesNoFileThatCouldShrinkOrIsNoTraceFile) {
  std::string fault;
  EXPECT_EQ(Open(TrainingProcess(0), fault), nullptr);
  EXPECT_EQ(fault, "its trace file is of another version");
  EXPECT_EQ(Open(TrainingProcess(F_SEAL_GROW), fault), nullptr);
  EXPECT_EQ(Open(TrainingProcess(kSeals, 4096), fault), nullptr);
  EXPECT_EQ(fault, "its trace file is of another version");
  TrainingProcess process;
  EXPECT_EQ(TraceMemory::Open(::getpid(), process.start_ns() + 1, fault), nullptr);
  EXPECT_EQ(fault, "its trace file is of another process or version");
  process->control.magic = 1;
  EXPECT_EQ(Open(process, fault), nullptr);
}

TEST(TraceMemoryTest, VisitsEachRecordOnceAndGivesBackAChunkThatIsClosedAndRead) {
  TrainingProcess process;
  const auto memory = AskFor(process, Level::kChannels);
  Chunk& chunk = process.Fill(5, 2);
  EXPECT_EQ(StartsIn(*memory), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(StartsIn(*memory), std::vector<uint64_t>{});
  process.Fill(5, 4);
  EXPECT_EQ(StartsIn(*memory), (std::vector<uint64_t>{3, 4}));
  EXPECT_NE(chunk.owner, 0u);
  chunk.closed_words = 4 * std::tuple_size_v<trace_ring::ChannelRecord>;
  EXPECT_EQ(StartsIn(*memory), std::vector<uint64_t>{});
  EXPECT_EQ(chunk.owner, 0u);
  EXPECT_EQ(memory->HiddenOf(kSlot, Role::kProgress), 0u);
  process->lost[kSlot][static_cast<size_t>(Role::kProgress)] += 9;
  EXPECT_EQ(memory->LostBy(kSlot, Role::kProgress), 9u);
}

// The thread that claimed the third record sleeps, or has died.
TEST(TraceMemoryTest, CountsWhatIsBehindARecordThatWasNeverWritten) {
  TrainingProcess process;
  const auto memory = AskFor(process, Level::kChannels);
  constexpr size_t kWords = std::tuple_size_v<trace_ring::ChannelRecord>;
  process.Fill(0, 6).words[2 * kWords] = 0;
  Chunk& closed = process.Fill(1, 6);
  closed.words[2 * kWords] = 0;
  closed.closed_words = 6 * kWords;
  EXPECT_EQ(StartsIn(*memory), (std::vector<uint64_t>{1, 2, 1, 2}));
  EXPECT_EQ(memory->HiddenOf(kSlot, Role::kProgress), 8u) << "four in each";
  EXPECT_EQ(memory->HiddenOf(kSlot, Role::kCaller), 0u);
  EXPECT_NE(closed.owner, 0u) << "it may still come";
  process.Fill(1, 6);
  EXPECT_EQ(StartsIn(*memory), (std::vector<uint64_t>{3, 4, 5, 6}));
  EXPECT_EQ(memory->HiddenOf(kSlot, Role::kProgress), 4u);
}

TEST(TraceMemoryTest, SurvivesWhateverTheProcessWrites) {
  TrainingProcess process;
  const auto memory = AskFor(process, Level::kChannels);
  std::mt19937_64 random(4711);
  size_t visits = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 1000; ++i) {
      Chunk& chunk = process->chunks[random() % 64];
      const uint64_t word = random() % 3 == 0 ? random() : random() % 6;
      switch (random() % 4) {
        case 0:
          chunk.owner = random() % 2 == 0
                            ? trace_ring::OwnerWord(
                                  kSession, static_cast<uint32_t>(random() % 5000), Role::kProgress)
                            : word;
          break;
        case 1:
          chunk.closed_words = word;
          break;
        default:
          chunk.words[random() % Chunk::kWords] = word;
      }
    }
    memory->Read([&](uint32_t slot, std::span<const uint64_t> record) {
      ASSERT_LT(slot, trace_ring::kMostSlots);
      ASSERT_EQ(record.size(), trace_ring::WordsOf(trace_ring::TypeOf(record[0])));
      ++visits;
    });
    memory->HiddenOf(kSlot, Role::kProgress);
  }
  EXPECT_GT(visits, 1000u);
}

}  // namespace
}  // namespace nccl_exporter::collector
