// SPDX-License-Identifier: Apache-2.0
// Traces on request, through the whole library: what is recorded, and that nothing that another
// process writes harms the job.
#include <array>
#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "plugin/survival/survival_fixture.h"
#include "plugin/testing/own_trace_file.h"

namespace nccl_exporter::plugin::survival {
namespace {

using trace_ring::Answer;
using trace_ring::Level;
using trace_ring::RecordType;

class TraceSurvival : public SurvivalTest {};

// By type; each record's words.
std::map<RecordType, std::vector<std::vector<uint64_t>>> ReadAll(TraceRequester& requester) {
  TraceRequester::Records records;
  requester.Read(records);
  std::map<RecordType, std::vector<std::vector<uint64_t>>> by_type;
  for (auto& [lane, of_lane] : records) {
    for (auto& record : of_lane) by_type[trace_ring::TypeOf(record[0])].push_back(record);
  }
  return by_type;
}

TEST_F(TraceSurvival, RecordsEachOperationChannelAndStepOfARequestOnce) {
  InEach<2, 3, 4, 5, 6, 7>([&]<int kVersion>() {
    constexpr uint64_t kRuns = 40, kSteps = 20;
    Caller<kVersion> caller;
    caller.Run();
    TraceRequester requester(MapOwnTraceFile());
    requester.Ask(ForAMinute(Level::kSteps));
    const View view = Segment();
    const auto state_sum = [&](NetworkState state) {
      return view.Waited(NetworkDirection::kSend, state) +
             view.Waited(NetworkDirection::kRecv, state);
    };
    std::map<uint64_t, uint64_t> durations;  // number of each
    for (uint64_t i = 0; i < kRuns; ++i) {
      void* operation = caller.Announce({.count = 1000 + i});
      caller.RunProxy(operation, true, kSteps);
      caller.RunProxy(operation, false, kSteps);
      ++durations[caller.Complete(operation)];
    }
    EXPECT_TRUE(requester.IsAnswered());
    EXPECT_EQ(requester.answer(), Answer::kTaken);
    const auto records = ReadAll(requester);
    const auto of = [&](RecordType type) {
      const auto found = records.find(type);
      return found != records.end() ? found->second : std::vector<std::vector<uint64_t>>();
    };
    const auto operations = of(RecordType::kOperation);
    ASSERT_EQ(operations.size(), kRuns);
    for (uint64_t i = 0; i < kRuns; ++i) EXPECT_EQ(operations[i][3], (1000 + i) * 4);
    if constexpr (kVersion >= 4) {
      std::map<uint64_t, uint64_t> traced;
      for (const auto& channel : of(RecordType::kChannel)) ++traced[channel[2] - channel[1]];
      for (auto& [duration, count] : durations) count *= 2;
      EXPECT_EQ(traced, durations);
    }
    if (kVersion == 3) {
      EXPECT_EQ(of(RecordType::kChannel).size(), 2 * kRuns);
    }
    if (kVersion >= 3) {
      EXPECT_EQ(of(RecordType::kNetworkOperation).size(), 2 * kRuns);
    }
    const auto steps = of(RecordType::kStep);
    EXPECT_EQ(steps.size(), 2 * kRuns * kSteps);
    for (const NetworkState state :
         {NetworkState::kGpu, NetworkState::kPeer, NetworkState::kNetwork, NetworkState::kFlush}) {
      uint64_t traced_ns = 0;
      for (const auto& step : steps) traced_ns += step[2 + static_cast<size_t>(state)];
      EXPECT_EQ(traced_ns, state_sum(state)) << NameOf(state);
    }
    EXPECT_EQ(view.Lost(), Losses());
  });
}

TEST_F(TraceSurvival, CountsAreThoseOfAJobThatNobodyTraces) {
  const auto play = [&](bool is_traced) {
    InChild([&] {
      Caller<7> caller;
      caller.Run();
      TraceRequester requester(MapOwnTraceFile());
      if (is_traced) requester.Ask(ForAMinute(Level::kSteps, 16));  // and overruns its ring
      for (int i = 0; i < 3000; ++i) {
        caller.Run();
        void* fewer = caller.Announce({.channels = 16});
        caller.Complete(fewer, 13);
        caller.Complete(fewer, 1);  // over
        caller.Run({.function = "Send", .channels = 4, .peer = 3});
        void* repeated = caller.Announce();
        void* channel = caller.Kernel(repeated, 0, GpuNow());
        caller.Kernel(repeated, 0, GpuNow());  // announced twice
        caller.Stamp(channel, GpuNow());
        caller.Stamp(channel, GpuNow());
        caller.Stop(channel);
        caller.StopKernel(caller.Kernel(repeated, 1, GpuNow()), GpuNow());
      }
      const View view = Segment();
      EXPECT_EQ(view.Started(), 9001u);
      EXPECT_EQ(view.Timed("Send"), 3000u);
    });
    return Segment().Lost();
  };
  const Losses lost = play(false);
  EXPECT_GE(lost.at("stale_handle"), 3000u);
  EXPECT_EQ(play(true), lost);
}

TEST_F(TraceSurvival, AForkedChildRecordsNothingAndANewOneHasAFileOfItsOwn) {
  InChild([&] {
    Caller<6> caller;
    caller.Run();
    trace_ring::File* const file = MapOwnTraceFile();
    TraceRequester requester(file);
    requester.Ask(ForAMinute(Level::kChannels));
    caller.Run();
    const int status = StatusOf([&] {
      caller.Run();
      Caller<6> own({.id = 77});
      own.Run();
      trace_ring::File* const own_file = MapOwnTraceFile();
      EXPECT_GT(own_file->control.owner_start_ns, file->control.owner_start_ns);
      EXPECT_EQ(Read(own_file->control.generation), 0u);
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(ReadAll(requester)[RecordType::kOperation].size(), 1u);
  });
}

// Windows.

TEST_F(TraceSurvival, KeepsWindowsOfNetworkTimingOpenForSteps) {
  constexpr int kSteps = 16;
  InChild([&] {
    nccl::Report(22809);
    setenv("NCCL_EXPORTER_NETWORK_TIMING", "0.001/3600", 1);
    Caller<5> caller;
    const auto run_until = [&](int wanted) {
      for (int i = 0; i < 20'000 && (caller.mask & kSteps) != wanted; ++i) caller.Run();
      return (caller.mask & kSteps) == wanted;
    };
    EXPECT_TRUE(run_until(0)) << caller.mask;
    TraceRequester requester(MapOwnTraceFile());
    requester.Ask(ForAMinute(Level::kSteps));
    EXPECT_TRUE(run_until(kSteps));
    requester.Ask({.level = Level::kNone});
    EXPECT_TRUE(run_until(0));
  });
}

// Hostile requesters.

// Words that are near to what a request has, and others.
class HostileWriter {
 public:
  HostileWriter(trace_ring::File* file, uint32_t seed)
      : words_(reinterpret_cast<AtomicU64*>(file)), random_(seed) {}

  void Write(uint64_t count) {
    constexpr size_t kControl = offsetof(trace_ring::File, control.generation) / 8;
    constexpr size_t kLost = offsetof(trace_ring::File, lost) / 8;
    constexpr size_t kChunks = offsetof(trace_ring::File, chunks) / 8;
    constexpr size_t kSome = 64 * trace_ring::kChunkBytes / 8;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t where = random_() % 8;
      const size_t place = where < 4   ? kControl + random_() % 16
                           : where < 5 ? kLost + random_() % 16
                           : where < 7 ? kChunks + random_() % kSome / 512 * 512 + random_() % 2
                                       : kChunks + random_() % kSome;
      StoreRelaxed(words_[place], Word());
      if (i % 64 == 0) Ask();
    }
  }

 private:
  uint64_t Word() {
    const uint64_t now_ns = ReadClock(CLOCK_REALTIME);
    switch (random_() % 6) {
      case 0:
        return random_() % 5;
      case 1:
        return now_ns + random_() % 100'000'000'000;
      case 2:
        return uint64_t{1} << random_() % 64;
      case 3:
        return random_() % 64 << 32 | random_() % 512;  // as a chunk's owner
      case 4:
        return ~uint64_t{0} - random_() % 4;
      default:
        return random_();
    }
  }
  // A proper request, among all that.
  void Ask() {
    const TraceRequester::Request request =
        ForAMinute(static_cast<Level>(1 + random_() % 3), uint64_t{16} << random_() % 3);
    TraceRequester(reinterpret_cast<trace_ring::File*>(words_)).Ask(request);
  }

  AtomicU64* words_;
  std::mt19937_64 random_;
};

uint64_t HostileWords() {
  const char* words = std::getenv("HOSTILE_WORDS");
  return words != nullptr ? std::strtoull(words, nullptr, 10) : 300'000;
}

// Ten million words: CONTRIBUTING.md.
TEST_F(TraceSurvival, CountsExactlyWhateverIsWrittenIntoItsFile) {
  InChild([&] {
    alarm(600);
    constexpr int kCallers = 2;
    std::array<Caller<6>, kCallers> callers{Caller<6>{{.id = 1}}, Caller<6>{{.id = 2}}};
    trace_ring::File* const file = MapOwnTraceFile();
    std::atomic<bool> is_over{false};
    std::array<std::atomic<uint64_t>, kCallers> runs{};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kCallers; ++i) {
      threads.emplace_back([&, i] {
        for (; !is_over.load(std::memory_order_relaxed); ++runs[i]) {
          void* operation = callers[i].Announce();
          callers[i].RunProxy(operation, runs[i] % 2 == 0, 2);
          callers[i].Complete(operation);
        }
      });
    }
    // Each caller has met them often, however slow the machine is.
    HostileWriter writer(file, 4711);
    do {
      writer.Write(HostileWords());
    } while (runs[0] <= 1000 || runs[1] <= 1000);
    is_over.store(true);
    for (std::thread& thread : threads) thread.join();
    const View view = Segment();
    for (size_t i = 0; i < kCallers; ++i) {
      EXPECT_EQ(view.Started("AllReduce", i), runs[i]);
      EXPECT_EQ(view.Timed("AllReduce", i), runs[i]);
      EXPECT_EQ(view.NetworkOperations(i), runs[i]);
    }
    EXPECT_EQ(view.Lost(), Losses());
    // The next request is as good as the first. Its requester gives it a page without rubbish.
    for (auto& chunk : file->chunks) chunk.owner.store(0);
    TraceRequester requester(file);
    requester.Ask(ForAMinute(Level::kChannels));
    callers[0].Run();
    EXPECT_EQ(requester.answer(), Answer::kTaken);
    EXPECT_EQ(ReadAll(requester)[RecordType::kChannel].size(), 2u);
  });
}

// The file's pages are taken away under a running request: the next store finds a page of zeros.
TEST_F(TraceSurvival, GoesOnWhereThePagesOfItsFileAreTakenAway) {
  InChild([&] {
    Caller<6> caller;
    caller.Run();
    const auto [file, memory] = FindOwnTraceFile();
    TraceRequester requester(memory);
    for (int i = 0; i < 2000; ++i) {
      if (i % 10 == 0) requester.Ask(ForAMinute(Level::kChannels, 16));
      EXPECT_NE(ftruncate(file, i * 4096), 0);
      EXPECT_EQ(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (i % 20) * 4096L,
                          4096 * (1 + i % 7)),
                0);
      caller.Run();
    }
    ExpectAllTimed(Segment(), 2001);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
