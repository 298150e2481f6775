// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter trace` over simulated jobs, against the simulator's account of each operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "collector/trace/node_trace.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/eventually.h"
#include "exporter/testing/gunzip.h"
#include "exporter/trace/trace_section.h"
#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using Options = std::vector<std::string>;
using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedOperation;

// The simulated GPUs' clocks are off by up to 8 parts in a million, and tick.
constexpr double kGpuDrift = 8e-6;
constexpr int64_t kTicksNs = 2048;

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return path.ends_with(".gz") ? exporter::Gunzip(text) : text;
}

class TraceTest : public testing::Test {
 protected:
  static std::map<std::string, std::string> Timed() {
    return {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}};
  }
  std::string Path(const std::string& name) const { return results_.File(name); }
  // A job in real time; waits for its end.
  nlohmann::json RunJob(const Options& options, const std::string& segments) const {
    Options all{"--pace", "real", "--truth-operations"};
    all.insert(all.end(), options.begin(), options.end());
    const exporter::Finished job =
        exporter::RunToEnd(SimulatorCommand(segments, Path("truth.json"), all), Timed());
    EXPECT_EQ(job.exit_code, 0) << job.output;
    return ReadTruth(Path("truth.json"));
  }
  // A recording that has begun.
  std::unique_ptr<exporter::ChildProcess> StartTrace(const std::string& segments,
                                                     const std::string& output,
                                                     const std::string& node = "here") const {
    auto trace = std::make_unique<exporter::ChildProcess>(
        Options{kDaemonPath, "--segment.dir=" + segments, "trace", "--seconds=60", "-o",
                Path(output)},
        std::map<std::string, std::string>{{"NODE_NAME", node}});
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return trace;
  }
  std::vector<NodeTrace> End(exporter::ChildProcess& trace, const std::string& output) const {
    trace.Signal(SIGINT);
    EXPECT_EQ(trace.Wait(), 0) << trace.AllOutput();
    return Read(output);
  }
  std::vector<NodeTrace> Read(const std::string& output) const {
    std::string fault;
    std::vector<NodeTrace> nodes = exporter::ReadTraceSection(TextOf(Path(output)), fault);
    EXPECT_EQ(fault, "");
    return nodes;
  }

  static const TracedCommunicator* Find(const std::vector<NodeTrace>& nodes,
                                        const nlohmann::json& truth) {
    const uint64_t id = std::stoull(truth["id"].get<std::string>(), nullptr, 16);
    const TracedCommunicator* found = nullptr;
    for (const NodeTrace& node : nodes) {
      for (const collector::TracedProcess& process : node.processes) {
        for (const TracedCommunicator& communicator : process.communicators) {
          if (communicator.id != id || communicator.rank != truth["rank"]) continue;
          EXPECT_EQ(found, nullptr) << "each communicator is there once";
          found = &communicator;
        }
      }
    }
    return found;
  }

  const collector::ScratchDirectory segments_, results_;
};

// Operations of one function as the job did them, against those of the trace in the same order.
void ExpectSame(const std::vector<const nlohmann::json*>& done,
                std::vector<const TracedOperation*> traced, int64_t epoch_ns) {
  ASSERT_EQ(traced.size(), done.size());
  std::ranges::sort(traced, {}, &TracedOperation::start_ns);
  // Offset of the GPU's clock, by each operation alone in its launch: equal for all, but for the
  // drift.
  std::optional<std::pair<int64_t, int64_t>> first_offset;
  for (size_t i = 0; i < done.size(); ++i) {
    const nlohmann::json& operation = *done[i];
    const TracedOperation& traced_operation = *traced[i];
    EXPECT_EQ(traced_operation.bytes, operation["bytes"]);
    EXPECT_LE(traced_operation.call_ns, traced_operation.delivered_ns);
    if (traced_operation.members != 1) continue;
    const int64_t start_ns = epoch_ns + operation["start_ns"].get<int64_t>();
    const int64_t offset_ns = start_ns - traced_operation.start_ns;
    if (!first_offset) first_offset = {start_ns, offset_ns};
    const double drift_ns = kGpuDrift * static_cast<double>(start_ns - first_offset->first);
    EXPECT_LE(std::abs(offset_ns - first_offset->second), static_cast<int64_t>(drift_ns) + 20'000)
        << "channels start within 10 us";
    EXPECT_LE(traced_operation.call_ns, start_ns + kTicksNs);
    EXPECT_GE(traced_operation.delivered_ns,
              start_ns + traced_operation.stop_ns - traced_operation.start_ns - 20'000);
    EXPECT_EQ(traced_operation.stop_ns - traced_operation.start_ns, operation["true_ns"]);
  }
}

TEST_F(TraceTest, HasEveryOperationOfTheJobOnceWithItsTimes) {
  const auto trace = StartTrace(segments_.path(), "trace.json.gz");
  const nlohmann::json truth =
      RunJob({"--ranks-per-node", "4", "--layout", "3d", "--rate", "20", "--duration", "6"},
             segments_.path());
  const std::vector<NodeTrace> nodes = End(*trace, "trace.json.gz");
  size_t operations = 0, send_and_receive = 0;
  for (const nlohmann::json& rank : truth["ranks"]) {
    for (const nlohmann::json& communicator : rank["communicators"]) {
      const TracedCommunicator* const traced = Find(nodes, communicator);
      ASSERT_NE(traced, nullptr);
      EXPECT_EQ(traced->overwritten + traced->beyond_limit + traced->untimed.value_or(1), 0u);
      EXPECT_TRUE(traced->in_flight.empty());
      std::map<std::string, std::vector<const nlohmann::json*>> done;
      std::map<std::string, std::vector<const TracedOperation*>> by_function;
      for (const nlohmann::json& operation : communicator["operations"])
        done[operation["function"]].push_back(&operation);
      for (const TracedOperation& operation : traced->operations) {
        by_function[std::string(TraitsOf(operation.function).name)].push_back(&operation);
        send_and_receive += TraitsOf(operation.function).is_point_to_point;
        ++operations;
      }
      EXPECT_EQ(by_function.size(), done.size());
      for (const auto& [function, of_function] : done) {
        SCOPED_TRACE(function);
        if (function == "Send" || function == "Recv") {
          EXPECT_EQ(by_function[function].size(), of_function.size());
        } else {
          ExpectSame(of_function, by_function[function], truth["epoch_monotonic_ns"]);
        }
      }
    }
  }
  EXPECT_EQ(operations, TotalOperations(truth));
  EXPECT_GT(operations, 1000u);
  EXPECT_GT(send_and_receive, 100u);
}

TEST_F(TraceTest, CountsWhatTheRingsLost) {
  const auto trace = StartTrace(segments_.path(), "trace.json");
  exporter::ChildProcess job(SimulatorCommand(segments_.path(), Path("truth.json"),
                                              {"--pace", "real", "--ranks-per-node", "2", "--calls",
                                               "allreduce", "--rate", "1000", "--duration", "5"}),
                             Timed());
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    trace->Signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    trace->Signal(SIGCONT);
  }
  EXPECT_EQ(job.Wait(), 0) << job.AllOutput();
  const std::vector<NodeTrace> nodes = End(*trace, "trace.json");
  for (const nlohmann::json& rank : ReadTruth(Path("truth.json"))["ranks"]) {
    uint64_t timed = 0;
    const nlohmann::json& communicator = rank["communicators"][0];
    for (const nlohmann::json& size : communicator["functions"]["AllReduce"]["sizes"])
      timed += size["timed_operations"].get<uint64_t>();
    const TracedCommunicator* const traced = Find(nodes, communicator);
    ASSERT_NE(traced, nullptr);
    EXPECT_EQ(traced->operations.size() + traced->overwritten, timed);
    EXPECT_GT(traced->overwritten, 500u);
    EXPECT_GT(traced->operations.size(), 1000u);
  }
  const exporter::Finished summary =
      exporter::RunToEnd({kDaemonPath, "trace", "summary", Path("trace.json")});
  EXPECT_THAT(summary.output,
              testing::HasSubstr("operations were overwritten before they were read"));
}

TEST_F(TraceTest, HasTheLastOperationsOfAKilledRank) {
  const exporter::Finished job =
      exporter::RunToEnd(SimulatorCommand(segments_.path(), Path("truth.json"),
                                          {"--pace", "real", "--ranks-per-node", "2", "--layout",
                                           "dp", "--rate", "20", "--steps", "30", "--kill-rank",
                                           "1", "--kill-step", "25", "--kill-in-flight"}),
                         Timed());
  const exporter::Finished finished =
      exporter::RunToEnd({kDaemonPath, "trace", "--last=10m", "-o", Path("last.json.gz"),
                          "--segment.dir=" + segments_.path()});
  ASSERT_EQ(finished.exit_code, 0) << finished.output << job.output;
  const std::vector<NodeTrace> nodes = Read("last.json.gz");
  ASSERT_EQ(nodes.at(0).processes.size(), 2u);
  bool has_killed = false;
  for (const collector::TracedProcess& process : nodes[0].processes) {
    EXPECT_FALSE(process.is_alive);
    size_t operations = 0, in_flight = 0;
    for (const TracedCommunicator& communicator : process.communicators) {
      operations += communicator.operations.size();
      in_flight += communicator.in_flight.size();
    }
    EXPECT_GE(operations, 25u);
    if (process.communicators.at(0).rank != 1) continue;
    has_killed = true;
    EXPECT_GE(in_flight, 1u) << "what it was in when it was killed";
  }
  EXPECT_TRUE(has_killed);
}

// The first communicator of `trace summary`, in milliseconds.
class Summary {
 public:
  explicit Summary(const std::string& file)
      : finished_(exporter::RunToEnd({kDaemonPath, "trace", "summary", file})) {
    EXPECT_EQ(finished_.exit_code, 0) << finished_.output;
    const std::regex line(
        " *([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9.]+)  ([a-z]+( [a-z]+)?) +"
        "(.*), ranks ([0-9]+) of ([0-9]+), operations ([0-9]+)");
    EXPECT_TRUE(std::regex_search(finished_.output, row_, line)) << finished_.output;
  }
  double Total() const { return std::stod(row_[1]); }
  double Mismatch() const { return std::stod(row_[5]); }
  std::string Mostly() const { return row_[7]; }
  const std::string& text() const { return finished_.output; }

 private:
  const exporter::Finished finished_;
  std::smatch row_;
};

// One rank of four computes three times as long, or its program comes late to each step.
TEST_F(TraceTest, SummarySaysWhetherAGpuOrACpuWasLate) {
  for (const auto& [incident, mostly] :
       std::map<std::string, std::string>{{"slow-gpu:rank=2,percent=200", "arrival skew"},
                                          {"slow-rank:rank=2,percent=200", "launch skew"}}) {
    SCOPED_TRACE(incident);
    const collector::ScratchDirectory segments;
    const std::string file = mostly.substr(0, 6) + ".json.gz";
    const auto trace = StartTrace(segments.path(), file);
    const nlohmann::json truth = RunJob({"--ranks-per-node", "4", "--layout", "dp", "--rate", "20",
                                         "--duration", "4", "--incident", incident},
                                        segments.path());
    End(*trace, file);
    const Summary summary(Path(file));
    EXPECT_EQ(summary.Mostly(), mostly) << summary.text();
    EXPECT_EQ(summary.Mismatch(), 0);
    double true_ms = 0;
    for (const nlohmann::json& rank : truth["ranks"]) {
      for (const nlohmann::json& operation : rank["communicators"][0]["operations"])
        true_ms += operation["true_ns"].get<double>() / 1e6;
    }
    EXPECT_NEAR(summary.Total(), true_ms, true_ms / 100);
  }
}

TEST_F(TraceTest, SummaryFindsRanksInDifferentCalls) {
  const exporter::ChildProcess job(
      SimulatorCommand(segments_.path(), Path("truth.json"),
                       {"--pace", "real", "--ranks-per-node", "4", "--layout", "dp", "--rate", "20",
                        "--duration", "120", "--incident", "mismatched-call:rank=1,from=1"}),
      Timed());
  exporter::Eventually([&] {
    exporter::RunToEnd({kDaemonPath, "trace", "--last=1m", "-o", Path("hang.json"),
                        "--segment.dir=" + segments_.path()});
    const exporter::Finished summary =
        exporter::RunToEnd({kDaemonPath, "trace", "summary", Path("hang.json")});
    return summary.output.find("sequence mismatch") != std::string::npos;
  });
  const Summary summary(Path("hang.json"));
  EXPECT_EQ(summary.Mostly(), "sequence mismatch") << summary.text();
  EXPECT_GT(summary.Mismatch(), 30'000) << "ten seconds of three ranks and more";
}

// The clock of one node, as it would be if it were off and drifted.
struct NodeClock {
  int64_t origin_ns = 0, offset_ns = 0;
  double drift = 0;

  int64_t Read(int64_t ns) const { return ns + OffsetAt(ns); }
  int64_t OffsetAt(int64_t ns) const {
    return offset_ns + static_cast<int64_t>(drift * static_cast<double>(ns - origin_ns));
  }
  void Apply(NodeTrace& node) const {
    for (int64_t* const time : {&node.begin_ns, &node.end_ns}) *time = Read(*time);
    for (collector::TracedProcess& process : node.processes) {
      for (TracedCommunicator& communicator : process.communicators) {
        communicator.whole_since_ns = Read(communicator.whole_since_ns);
        for (TracedOperation& operation : communicator.operations) {
          operation.call_ns = Read(operation.call_ns);
          operation.delivered_ns = Read(operation.delivered_ns);
        }
      }
    }
  }
};

// All nodes of the job are on this machine, so their true clocks are one.
TEST_F(TraceTest, MergeBoundsTheClocksOfFourNodes) {
  constexpr int kNodes = 4;
  const std::vector<NodeClock> clocks{{},
                                      {.offset_ns = 5'000'000, .drift = 20e-6},
                                      {.offset_ns = -5'000'000, .drift = -20e-6},
                                      {.offset_ns = 1'234'567, .drift = 13e-6}};
  std::vector<std::unique_ptr<collector::ScratchDirectory>> scratch;
  std::vector<std::unique_ptr<exporter::ChildProcess>> traces;
  for (int n = 0; n < kNodes; ++n) {
    std::filesystem::create_directory(segments_.File(std::to_string(n)));
    traces.push_back(StartTrace(segments_.File(std::to_string(n)),
                                "node" + std::to_string(n) + ".json.gz",
                                "node-" + std::to_string(n)));
  }
  RunJob({"--nodes", "4", "--ranks-per-node", "2", "--layout", "single", "--rate", "100",
          "--duration", "6"},
         segments_.path() + "/%n");
  Options merge{kDaemonPath, "trace", "merge", "-o", Path("all.json.gz")};
  std::vector<NodeTrace> shown;
  for (int n = 0; n < kNodes; ++n) {
    std::vector<NodeTrace> nodes =
        End(*traces[static_cast<size_t>(n)], "node" + std::to_string(n) + ".json.gz");
    ASSERT_EQ(nodes.size(), 1u);
    NodeClock clock = clocks[static_cast<size_t>(n)];
    clock.origin_ns = nodes[0].begin_ns;
    clock.Apply(nodes[0]);
    shown.push_back(nodes[0]);
    merge.push_back(Path("shown" + std::to_string(n) + ".json"));
    std::ofstream(merge.back()) << "{\"" << exporter::kTraceKey
                                << "\":" << exporter::TraceSection(nodes) << "}";
  }
  const exporter::Finished merged = exporter::RunToEnd(merge);
  ASSERT_EQ(merged.exit_code, 0) << merged.output;
  for (size_t n = 1; n < kNodes; ++n) {
    const std::regex line("node-" + std::to_string(n) +
                          ": ([+-][0-9.]+) us at the begin, ([+-][0-9.]+) us at the end, against "
                          "node-0; uncertain by ([0-9.]+) us");
    std::smatch match;
    ASSERT_TRUE(std::regex_search(merged.output, match, line)) << merged.output;
    const double uncertain_us = std::stod(match[3]);
    // The host runs ahead of its GPU, so that calls bound the CPU's clock loosely.
    EXPECT_LE(uncertain_us, 10'000);
    std::smatch kernels;
    ASSERT_TRUE(std::regex_search(
        merged.output, kernels,
        std::regex("node-" + std::to_string(n) +
                   ": kernels against those of node-0 uncertain by ([0-9.]+) us")))
        << merged.output;
    EXPECT_LE(std::stod(kernels[1]), 200);
    const double begin_us = static_cast<double>(clocks[n].offset_ns) / 1000;
    const double length_us = static_cast<double>(shown[n].end_ns - shown[n].begin_ns) / 1000;
    // CLOCK_REALTIME of this machine may be set or slewed between the ends of two recordings.
    const double set_us =
        static_cast<double>(shown[n].realtime_offset_ns - shown[0].realtime_offset_ns) / 1000;
    EXPECT_NEAR(std::stod(match[1]), -begin_us - set_us, uncertain_us + 0.2) << merged.output;
    EXPECT_NEAR(std::stod(match[2]), -begin_us - set_us - clocks[n].drift * length_us,
                uncertain_us + 0.2)
        << merged.output;
  }
  RecordProperty("uncertain", merged.output);
}

TEST_F(TraceTest, TheDaemonServesTheSameIfItIsAskedFor) {
  const Daemon closed(segments_.path());
  const Daemon open(segments_.path(), {"--web.enable-debug-trace"});
  const nlohmann::json truth =
      RunJob({"--ranks-per-node", "2", "--layout", "dp", "--rate", "20", "--duration", "2"},
             segments_.path());
  EXPECT_EQ(closed.Get("/debug/trace").status, 404);
  const exporter::HttpAnswer answer = open.Get("/debug/trace?last=1m");
  ASSERT_EQ(answer.status, 200);
  std::string fault;
  const std::vector<NodeTrace> nodes = exporter::ReadTraceSection(answer.body, fault);
  ASSERT_EQ(nodes.size(), 1u) << fault;
  for (const nlohmann::json& rank : truth["ranks"]) {
    for (const nlohmann::json& communicator : rank["communicators"]) {
      const TracedCommunicator* const traced = Find(nodes, communicator);
      ASSERT_NE(traced, nullptr);
      EXPECT_EQ(traced->operations.size(),
                std::min<size_t>(communicator["operations"].size(), 512));
    }
  }
}

}  // namespace
}  // namespace nccl_exporter
