// SPDX-License-Identifier: Apache-2.0
// Memory of the daemon in its worst case: two users forge as many communicators as are followed,
// with every function, all histograms and the longest labels, while clients ask for everything and
// the history of the node is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "collector/node_snapshot.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/segment_writer_v1.h"
#include "proto/buckets.h"
#include "proto/identity_variables.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

using collector::SegmentWriterV1;

// resources.limits.memory of the Kubernetes manifests and the chart.
[[maybe_unused]] constexpr double kLimitMebibytes = 256;
constexpr size_t kSizeHistograms = 11;
constexpr uid_t kOther = 65534;
// Both quotes and backslashes take two bytes in an answer.
constexpr char kLongestWhenEscaped = '\\';

std::string Longest(size_t field_bytes, size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(field_bytes - 1 - digits.size(), kLongestWhenEscaped) + digits;
}

template <typename Values>
void FillAll(Values& values, uint64_t value) {
  for (uint64_t& each : values) each = value++;
}

collector::ProcessV1 LongestProcess(size_t number) {
  collector::ProcessV1 process{.pid = 1000 + number, .uid = geteuid()};
  process.start_realtime_ns = 1;
  process.start_monotonic_ns = 1;
  process.plugin_version = Longest(32, number);
  process.host_name = Longest(64, number);
  process.executable = Longest(64, number);
  for (const IdentityVariable& variable : kIdentityVariables) {
    process.identity.emplace_back(variable.name, Longest(96, number));
  }
  process.losses.assign(20, number + 1);
  return process;
}

void PutCommunicator(size_t slot, size_t number, size_t functions, SegmentWriterV1& segment) {
  collector::CommunicatorV1 communicator{.id = number + 1, .ranks = 1024, .rank = number % 1024};
  communicator.nodes = 128;
  communicator.api_version = 5;
  communicator.gpu_index_plus_1 = 1 + number % 8;
  communicator.created_realtime_ns = communicator.created_monotonic_ns = 1;
  communicator.name = Longest(128, number);
  communicator.gpu_uuid = Longest(64, number);
  communicator.pci_bus_id = Longest(48, number);
  segment.Put(slot, communicator);
  collector::FunctionV1 counts{.calls = 1, .last_start_ns = 1};
  FillAll(counts.operations, 1000);
  FillAll(counts.bytes, 1000000);
  FillAll(counts.timed_operations, 1000);
  FillAll(counts.timed_bytes, 1000000);
  FillAll(counts.busy_ns, 1000000);
  counts.completed = 6000;
  counts.last_completion_ns = 1;
  counts.bandwidth_sum_kib = 1;
  counts.duration.resize(DurationBuckets::kCount);
  counts.bandwidth.resize(BandwidthBuckets::kCount);
  FillAll(counts.duration, 100);
  FillAll(counts.bandwidth, 100);
  for (size_t function = 0; function < functions; ++function) {
    segment.Put(slot, function, counts);
  }
  collector::SizeHistogramV1 histogram{.duration = counts.duration};
  for (size_t i = 0; i < kSizeHistograms; ++i) {
    histogram.function = i % functions;
    histogram.size_class = i / functions % 6;
    segment.Put(slot, i, histogram);
  }
  for (uint64_t ticket = 1; ticket <= 64; ++ticket) {
    segment.Put(slot, collector::InFlightV1{.ticket = ticket,
                                            .function = ticket % SegmentWriterV1::kFunctions,
                                            .sequence = ticket,
                                            .start_ns = 1,
                                            .bytes = uint64_t{1} << 40,
                                            .peer_plus_1 = ticket});
  }
}

// The words of a file, shared with those who read it.
uint64_t* Mapped(const std::string& path, size_t bytes) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw std::system_error(errno, std::generic_category(), path);
  void* const words = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int error = errno;
  close(file);
  if (words == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);
  return static_cast<uint64_t*>(words);
}

// A segment of a process that lives, with communicators whose every counter grows.
class ForgedSegment {
 public:
  ForgedSegment(const std::string& path, size_t number, size_t communicators, size_t functions)
      : communicators_(communicators),
        functions_(functions),
        layout_(1, SegmentWriterV1::kHeaderBytes, SegmentWriterV1::kSlotBytesOf13) {
    SegmentWriterV1 segment(communicators + 1, SegmentWriterV1::kHeaderBytes,
                            SegmentWriterV1::kSlotBytesOf13);
    segment.Put(LongestProcess(number));
    for (size_t slot = 0; slot < communicators; ++slot) {
      PutCommunicator(slot, number * communicators + slot, functions, segment);
    }
    segment.Publish();
    segment.WriteTo(path);
    bytes_ = segment.bytes().size();
    words_ = Mapped(path, bytes_);
    holder_ = std::make_unique<collector::LockHolder>(path);
  }
  ForgedSegment(const ForgedSegment&) = delete;
  ForgedSegment& operator=(const ForgedSegment&) = delete;
  ~ForgedSegment() { munmap(words_, bytes_); }

  void Grow() {
    for (size_t slot = 0; slot < communicators_; ++slot) {
      const size_t first = layout_.FunctionAt(slot, 0) / sizeof(uint64_t);
      const size_t end = layout_.FunctionAt(slot, functions_) / sizeof(uint64_t);
      for (size_t word = first; word < end; ++word) ++words_[word];
    }
  }

 private:
  const size_t communicators_;
  const size_t functions_;
  const SegmentWriterV1 layout_;
  size_t bytes_ = 0;
  uint64_t* words_ = nullptr;
  std::unique_ptr<collector::LockHolder> holder_;
};

class ForgedMemory : public testing::TestWithParam<size_t> {
 protected:
  void Forge(size_t processes) {
    for (size_t process = 0; process < processes; ++process) {
      const std::string path = segments_.File(std::to_string(process) + ".seg");
      forged_.push_back(std::make_unique<ForgedSegment>(
          path, process, collector::kMaxCommunicators / processes, GetParam()));
      // Two users have twice the share of one. Root alone may give files away.
      if (geteuid() == 0 && process % 2 != 0) {
        ASSERT_EQ(chown(path.c_str(), kOther, kOther), 0);
      }
    }
  }

  // All counters grow, so that each step of the history has all that it can have.
  void GrowFor(int steps) {
    for (int step = 0; step < steps; ++step) {
      for (const auto& segment : forged_) segment->Grow();
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
    }
  }

  // Whether the daemon's history has all steps that it keeps. A loaded machine needs several times
  // its half minute for them.
  bool EventuallyFillsTheHistory(const Daemon& daemon) {
    constexpr std::chrono::minutes kPatience{5};
    constexpr int kStepsBetweenLooks = 20;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    do {
      GrowFor(kStepsBetweenLooks);
      const auto node = nlohmann::json::parse(daemon.Get("/api/v1/node").body, nullptr, false);
      if (node.is_discarded()) continue;
      const auto& history = node.at("history");
      std::printf("%zu of %d steps\n", history.at("times").size(), history.at("steps").get<int>());
      if (history.at("times").size() == history.at("steps").get<size_t>()) return true;
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
  }

  // The most memory that the process has had, in MiB.
  static double PeakMebibytes(pid_t process) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
    }
    return 0;
  }

  collector::ScratchDirectory segments_;
  std::vector<std::unique_ptr<ForgedSegment>> forged_;
};

// Clients that ask again and again, each on a thread of its own, until they are destroyed.
class Clients {
 public:
  explicit Clients(const Daemon& daemon) : daemon_(daemon) {}
  ~Clients() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  void Ask(const std::string& path, const std::vector<std::string>& headers = {}) {
    threads_.emplace_back([this, path, headers] {
      while (!stop_) {
        if (daemon_.Get(path, headers).status == 200) ++answers_;
      }
    });
  }
  int answers() const { return answers_; }

 private:
  const Daemon& daemon_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> answers_ = 0;
  std::vector<std::thread> threads_;
};

// Connections that ask for `path` and take no byte of the answer.
class SlowReaders {
 public:
  SlowReaders(int port, const std::string& path, int count) {
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(exporter::Send(port,
                                        "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                        "127.0.1." + std::to_string(1 + i)));
    }
  }
  ~SlowReaders() {
    for (const int each : sockets_) close(each);
  }

 private:
  std::vector<int> sockets_;
};

// Ten minutes of history pass in half a minute.
TEST_P(ForgedMemory, IsBelowTheChartsLimitWhateverClientsAskFor) {
  constexpr int kSteps = 140;
  ASSERT_NO_FATAL_FAILURE(Forge(12));
  Daemon daemon(segments_.path(), {"--findings.time-scale=20"});
  ASSERT_TRUE(EventuallyFillsTheHistory(daemon));
  {
    Clients clients(daemon);
    clients.Ask("/metrics");
    clients.Ask("/metrics",
                {"Accept: application/openmetrics-text;version=1.0.0", "Accept-Encoding: gzip"});
    clients.Ask("/metrics", {"Accept: application/vnd.google.protobuf;"
                             "proto=io.prometheus.client.MetricFamily;encoding=delimited"});
    clients.Ask("/api/v1/node");
    clients.Ask("/api/v1/findings");
    const SlowReaders scrapes(daemon.port(), "/metrics", 16);
    const SlowReaders nodes(daemon.port(), "/api/v1/node", 16);
    GrowFor(kSteps);
    EXPECT_GT(clients.answers(), 10);
  }
  const double peak = PeakMebibytes(daemon.process().pid());
  std::printf("%.0f MiB at most\n", peak);
  EXPECT_GT(peak, 50) << "the forged communicators are not served";
// Memory of a sanitizer is not the daemon's own.
#if !defined(NCCL_EXPORTER_ASAN) && !defined(NCCL_EXPORTER_TSAN)
  EXPECT_LT(peak, kLimitMebibytes);
#endif
}

// The room for communicators is by memory: one of all functions takes that of six.
INSTANTIATE_TEST_SUITE_P(Functions, ForgedMemory, testing::Values(2, SegmentWriterV1::kFunctions));

}  // namespace
}  // namespace nccl_exporter
