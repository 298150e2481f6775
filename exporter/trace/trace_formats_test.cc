// SPDX-License-Identifier: Apache-2.0
// Files of traces, read by an independent reader: a JSON parser with the rules of Chrome's trace
// events.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "exporter/testing/simulated_nodes.h"
#include "exporter/trace/certain_waits.h"
#include "exporter/trace/chrome_trace.h"
#include "exporter/trace/trace_section.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

// Two nodes, a launch of two operations, an operation in flight, and text that needs escapes.
std::vector<collector::NodeTrace> ExampleNodes() {
  SimulatedJob job({.nodes = 2, .length_ns = kSecond});
  collector::TracedProcess& process = job.nodes[0].processes[0];
  process.global_rank = "0";
  process.executable = "py\"thon\n";
  process.is_alive = true;
  process.pid = 4711;
  collector::TracedCommunicator& communicator = process.communicators[0];
  communicator.name = "d\\p\xff";
  communicator.operations.back().members = 2;
  communicator.started.emplace(kFunctionCount, 7);
  collector::TracedOperation member = communicator.operations.back();
  member.function = Function::kSend;
  member.start_ns += 5 * kUs;
  member.stop_ns += 5 * kUs;
  communicator.operations.push_back(member);
  for (const int64_t before_ns : {3 * kMs, 1 * kMs}) {
    communicator.in_flight.push_back({.function = Function::kAllGather,
                                      .sequence = 5,
                                      .call_ns = job.nodes[0].end_ns - before_ns,
                                      .bytes = 99,
                                      .parts_announced = 4,
                                      .parts_done = 1});
  }
  return job.nodes;
}

class FormatsTest : public testing::Test {
 protected:
  const std::vector<collector::NodeTrace> nodes_ = ExampleNodes();
  const ClockAlignment alignment_{nodes_};
};

TEST_F(FormatsTest, TheSectionGivesTheNodesBack) {
  std::string fault;
  std::vector<collector::NodeTrace> read = ReadTraceSection(ChromeTrace(alignment_), fault);
  ASSERT_EQ(fault, "");
  EXPECT_EQ(read[0].processes[0].communicators[0].name, "d\\p\xEF\xBF\xBD") << "valid UTF-8";
  read[0].processes[0].communicators[0].name = nodes_[0].processes[0].communicators[0].name;
  EXPECT_EQ(read[0].processes[0].executable, "py\"thon\xEF\xBF\xBD") << "no controls";
  read[0].processes[0].executable = nodes_[0].processes[0].executable;
  EXPECT_EQ(read, nodes_);
}

TEST_F(FormatsTest, WhatIsNoTraceIsRefusedWithTheReason) {
  const auto fault_of = [](const std::string& text) {
    std::string fault;
    EXPECT_TRUE(ReadTraceSection(text, fault).empty());
    return fault;
  };
  EXPECT_EQ(fault_of("{\"traceEvents\":[]}"), "it is no trace of nccl-exporter in Chrome's format");
  EXPECT_EQ(fault_of("{\"ncclExporterTrace\":{\"version\":1,\"nodes\":[]}}"),
            "another version wrote it");
  EXPECT_EQ(fault_of("{\"ncclExporterTrace\":{\"version\":3,\"nodes\":[]}}"), "it has no node");
  EXPECT_EQ(fault_of("[]"), "it is no trace of nccl-exporter in Chrome's format");
  EXPECT_NE(fault_of("\x0a\x05"), "");
  std::string fraction = ChromeTrace(alignment_);
  const std::string end = "\"end_ns\":";
  fraction.insert(fraction.find(end) + end.size(), "1.7e22,\"x\":");
  EXPECT_EQ(fault_of(fraction), "it has a fraction in place of a count or a time");
  std::string text = ChromeTrace(alignment_);
  text.resize(text.find("traceEvents"));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {  // damage: a fault or a trace, and no crash
    std::string damaged = text.substr(0, 3000) + text.substr(text.size() - 3000) + "x\":[]}";
    damaged[random() % damaged.size()] = static_cast<char>(random());
    std::string fault;
    const bool is_read = !ReadTraceSection(damaged, fault).empty();
    EXPECT_EQ(is_read, fault.empty());
  }
}

// By https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
TEST_F(FormatsTest, ChromeEventsKeepTheRulesOfTheFormat) {
  const json file = json::parse(ChromeTrace(alignment_));
  EXPECT_EQ(file["displayTimeUnit"], "ns");
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> slices;
  std::map<uint64_t, std::tuple<int, int, double>> starts;
  std::set<int> named;
  size_t ends = 0, counts = 0, waits = 0;
  for (const json& event : file["traceEvents"]) {
    const std::string phase = event["ph"];
    const int pid = event["pid"];
    if (phase == "M") {
      if (event["name"] == "process_name") named.insert(pid);
      continue;
    }
    ASSERT_TRUE(named.contains(pid)) << "a process is named before its events";
    const std::pair track(pid, event.value("tid", 0));
    const double ts = event["ts"];
    EXPECT_GE(ts, 0);
    if (phase == "X") {
      slices[track].emplace_back(ts, event["dur"]);
      EXPECT_TRUE(event["args"].contains("comm")) << event;
      waits += event["args"].contains("comm_last_rank") ? 1 : 0;
    } else if (phase == "C") {
      EXPECT_GE(event["args"]["operations"].get<int>(), 0);
      ++counts;
    } else if (phase == "s") {
      starts[event["id"]] = {pid, track.second, ts};
    } else {
      ASSERT_EQ(phase, "f");
      EXPECT_EQ(event["bp"], "e");
      ASSERT_TRUE(starts.contains(event["id"]));
      EXPECT_LE(std::get<2>(starts[event["id"]]), ts) << "no arrow goes back";
      ++ends;
    }
  }
  EXPECT_EQ(ends, starts.size());
  EXPECT_GT(ends, waits);
  EXPECT_GT(waits, 50u);
  EXPECT_GT(counts, 100u);
  for (auto& [track, of_track] : slices) {  // they nest or follow each other
    std::ranges::stable_sort(of_track, {}, [](const auto& slice) { return slice.first; });
    std::vector<double> open;
    for (const auto& [ts, dur] : of_track) {
      while (!open.empty() && open.back() <= ts + 1e-6 && open.back() < ts + dur - 1e-6)
        open.pop_back();
      EXPECT_LE(ts + dur, open.empty() ? ts + dur : open.back() + 1e-3) << track.first;
      open.push_back(ts + dur);
    }
  }
}

TEST_F(FormatsTest, EachOperationIsOneSliceWithItsArguments) {
  const json file = json::parse(ChromeTrace(alignment_));
  size_t kernels = 0, calls = 0;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] != "X") continue;
    kernels +=
        event["args"].contains("launch_members") && !event["args"].contains("comm_last_rank");
    calls += event["name"].get<std::string>().ends_with(" call");
  }
  size_t operations = 0;
  for (const auto& node : nodes_) {
    for (const auto& process : node.processes)
      operations += process.communicators[0].operations.size();
  }
  EXPECT_EQ(kernels, operations);
  EXPECT_EQ(calls, operations);
  const collector::TracedCommunicator& communicator = nodes_[0].processes[0].communicators[0];
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] != "X" || event["name"] != "AllReduce" || event["args"]["sequence"] != 1 ||
        event["args"]["rank"] != 0)
      continue;
    const collector::TracedOperation& first = communicator.operations[0];
    EXPECT_EQ(event["args"]["comm"], "0000000000000007");
    EXPECT_EQ(event["args"]["bytes"], 1 << 20);
    EXPECT_EQ(event["args"]["collective"], "AllReduce");
    EXPECT_EQ(event["args"]["ranks"], 4);
    EXPECT_NEAR(event["args"]["bus_bandwidth_gb_per_s"].get<double>(),
                1.5 * (1 << 20) / static_cast<double>(first.stop_ns - first.start_ns), 1e-6);
    EXPECT_NEAR(event["dur"].get<double>() * 1000,
                static_cast<double>(first.stop_ns - first.start_ns), 1);
    return;
  }
  FAIL() << "the first operation is missing";
}

// Regression: slices named ranks of the communicator, which were those of innocent processes.
TEST(TraceNumbersTest, SlicesArgumentsAndTracksHaveTheGlobalRanks) {
  std::vector<collector::NodeTrace> nodes = ExampleNodes();
  for (collector::NodeTrace& node : nodes) {  // ranks 0 to 3 of the communicator are 11 to 8
    for (collector::TracedProcess& process : node.processes)
      process.global_rank = std::to_string(11 - process.communicators[0].rank);
  }
  const ClockAlignment alignment(nodes);
  const json file = json::parse(ChromeTrace(alignment));
  std::map<int, std::string> of_process;
  size_t waits = 0;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "process_name")
      of_process[event["pid"]] = event["args"]["name"];
    EXPECT_GE(event.value("tid", 1), 1);
    if (event["ph"] != "X" || !event["args"].contains("comm_last_rank")) continue;
    ++waits;
    const json& arguments = event["args"];
    EXPECT_EQ(arguments["rank"], 11 - arguments["comm_rank"].get<int>());
    EXPECT_EQ(arguments["last_rank"], 11 - arguments["comm_last_rank"].get<int>());
    EXPECT_EQ(event["name"], fmt::format("waits for rank {}", arguments["last_rank"].get<int>()));
    EXPECT_THAT(of_process[event["pid"]],
                testing::StartsWith(fmt::format("rank {} (", arguments["rank"].get<int>())));
  }
  for (const auto& [pid, name] : of_process)
    EXPECT_THAT(name, testing::StartsWith(fmt::format("rank {} (", 7 + pid)));
  EXPECT_GT(waits, 50u);
}

TEST_F(FormatsTest, WaitsNameTheRankThatEnteredLast) {
  // True times are known: no wait may be longer, or for another rank, than they show.
  const SimulatedJob job({.nodes = 4, .length_ns = 3 * kSecond, .seed = 9});
  const ClockAlignment alignment(job.nodes);
  size_t late = 0;
  const std::vector<CertainWait> waits = CertainWaits(alignment);
  for (const CertainWait& wait : waits) {
    const std::vector<Participation>& members = alignment.meetings()[wait.meeting].members;
    const auto true_start = [&](size_t i) {
      return job.Gpu(members[i]).TrueOf(members[i].start_ns);
    };
    for (size_t i = 0; i < members.size(); ++i) {
      if (i == wait.last) continue;
      const int64_t waited_ns = true_start(wait.last) - true_start(i);
      EXPECT_GT(waited_ns, -32);
      EXPECT_GE(waited_ns, wait.waits_ns[i].least_ns - 64);
      EXPECT_LE(waited_ns, wait.waits_ns[i].most_ns + 64);
    }
  }
  for (const Meeting& meeting : alignment.meetings()) {
    std::vector<int64_t> starts;
    for (const Participation& member : meeting.members)
      starts.push_back(job.Gpu(member).TrueOf(member.start_ns));
    std::ranges::sort(starts);
    late += starts.back() - starts[starts.size() - 2] > kMs ? 1 : 0;
  }
  EXPECT_GE(waits.size(), late) << "who is a millisecond late is certain";
  EXPECT_GT(late, 100u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
