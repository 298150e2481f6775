// SPDX-License-Identifier: Apache-2.0
// Channels and steps on request, from the command through the plugin to the file, against the
// simulator's account; and requesters that are killed, or that have no business there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "collector/trace/node_trace.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/gunzip.h"
#include "exporter/trace/trace_section.h"
#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedDetail;
using Options = std::vector<std::string>;

class TraceDetailTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return results_.File(name); }

  // A job in real time.
  std::unique_ptr<exporter::ChildProcess> StartJob(const std::string& segments,
                                                   const Options& options) const {
    Options all{"--pace", "real", "--truth-operations"};
    all.insert(all.end(), options.begin(), options.end());
    return std::make_unique<exporter::ChildProcess>(
        SimulatorCommand(segments, Path("truth.json"), all),
        std::map<std::string, std::string>{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                           {"NCCL_EXPORTER_NETWORK_TIMING", "always"}});
  }
  static void WaitForSegments(const std::string& directory, size_t count) {
    for (int i = 0; i < 600; ++i) {
      size_t found = 0;
      if (std::filesystem::exists(directory)) {
        for (const auto& entry : std::filesystem::directory_iterator(directory))
          found += entry.path().extension() == ".seg" ? 1 : 0;
      }
      if (found >= count) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "the job has made no segments";
  }
  Options TraceCommand(const std::string& segments, const std::string& level,
                       const std::string& output, const std::string& seconds = "2") const {
    return {kDaemonPath, "--segment.dir=" + segments,
            "trace",     "--level",
            level,       "--seconds",
            seconds,     "-o",
            Path(output)};
  }
  std::vector<NodeTrace> Read(const std::string& output) const {
    std::ifstream file(Path(output), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::string fault;
    std::vector<NodeTrace> nodes = exporter::ReadTraceSection(exporter::Gunzip(text), fault);
    EXPECT_EQ(fault, "");
    return nodes;
  }
  // Of the communicators that have one, with what the job did on them.
  template <typename Check>
  static size_t ForEachDetail(const std::vector<NodeTrace>& nodes, const nlohmann::json& truth,
                              const Check& check) {
    size_t count = 0;
    for (const NodeTrace& node : nodes) {
      for (const collector::TracedProcess& process : node.processes) {
        EXPECT_EQ(process.detail_fault, "");
        for (const TracedCommunicator& communicator : process.communicators) {
          for (const nlohmann::json& rank : truth["ranks"]) {
            for (const nlohmann::json& of_truth : rank["communicators"]) {
              const uint64_t id = std::stoull(of_truth["id"].get<std::string>(), nullptr, 16);
              if (id != communicator.id || of_truth["rank"] != communicator.rank) continue;
              EXPECT_TRUE(communicator.detail.has_value());
              if (!communicator.detail) continue;
              ++count;
              check(communicator, *communicator.detail, of_truth);
            }
          }
        }
      }
    }
    return count;
  }
  static void ExpectNothingLost(const TracedDetail& detail) {
    EXPECT_EQ(detail.lost_operations + detail.lost_parts + detail.beyond_limit + detail.orphans,
              0u);
  }

  const collector::ScratchDirectory segments_, results_;
};

TEST_F(TraceDetailTest, ChannelsOfEveryOperationOfTheWindowAreThereOnceWithItsTimes) {
  const auto job = StartJob(segments_.path(), {"--ranks-per-node", "2", "--calls", "allreduce",
                                               "--rate", "100", "--duration", "8"});
  WaitForSegments(segments_.path(), 2);
  const exporter::Finished trace =
      exporter::RunToEnd(TraceCommand(segments_.path(), "channels", "trace.json.gz"));
  ASSERT_EQ(trace.exit_code, 0) << trace.output;
  ASSERT_EQ(job->Wait(), 0) << job->AllOutput();
  const nlohmann::json truth = ReadTruth(Path("truth.json"));
  size_t compared = 0;
  const size_t communicators = ForEachDetail(
      Read("trace.json.gz"), truth,
      [&](const TracedCommunicator& communicator, const TracedDetail& detail,
          const nlohmann::json& of_truth) {
        ExpectNothingLost(detail);
        EXPECT_FALSE(detail.has_steps);
        EXPECT_TRUE(detail.steps.empty());
        // The parts of each operation, and how long they took together.
        struct Span {
          int64_t start_ns = INT64_MAX, stop_ns = INT64_MIN;
          std::set<uint32_t> channels;
        };
        std::vector<Span> spans(detail.operations.size());
        for (const collector::TracedChannel& channel : detail.channels) {
          Span& span = spans.at(channel.operation);
          span.start_ns = std::min(span.start_ns, channel.start_ns);
          span.stop_ns = std::max(span.stop_ns, channel.stop_ns);
          EXPECT_TRUE(span.channels.insert(channel.channel).second) << "each channel once";
        }
        // The request was taken in the middle of the job, and ended before it: what it has is a
        // stretch of what the job did, without a gap.
        std::map<std::string, std::vector<size_t>> traced;
        for (size_t i = 0; i < detail.operations.size(); ++i)
          traced[std::string(TraitsOf(detail.operations[i].function).name)].push_back(i);
        std::map<std::string, std::vector<const nlohmann::json*>> done;
        for (const nlohmann::json& operation : of_truth["operations"])
          done[operation["function"]].push_back(&operation);
        for (const auto& [function, of_function] : traced) {
          SCOPED_TRACE(function);
          const auto& all = done[function];
          ASSERT_GE(all.size(), of_function.size());
          const uint64_t first = detail.operations[of_function.front()].sequence;
          for (size_t i = 0; i < of_function.size(); ++i) {
            EXPECT_EQ(detail.operations[of_function[i]].sequence, first + i);
            EXPECT_FALSE(spans[of_function[i]].channels.empty()) << "complete when the trace ended";
          }
          // Its place in the truth: the only one at which all durations and sizes are those of the
          // job.
          size_t places = 0;
          for (size_t at = 0; at + of_function.size() <= all.size(); ++at) {
            bool fits = true;
            for (size_t i = 0; i < of_function.size() && fits; ++i) {
              const nlohmann::json& true_operation = *all[at + i];
              const Span& span = spans[of_function[i]];
              fits = true_operation["bytes"] == detail.operations[of_function[i]].bytes &&
                     true_operation["true_ns"] == span.stop_ns - span.start_ns;
            }
            places += fits ? 1 : 0;
          }
          EXPECT_EQ(places, 1u);
          compared += of_function.size();
        }
        EXPECT_GT(communicator.operations.size(), 0u);
      });
  EXPECT_GE(communicators, 2u);
  EXPECT_GT(compared, 100u);
}

TEST_F(TraceDetailTest, StepsOfEveryNetworkOperationAddUpToWhatTheJobDid) {
  for (const char* node : {"0", "1"}) std::filesystem::create_directory(segments_.File(node));
  const auto job =
      StartJob(segments_.path() + "/%n", {"--nodes", "2", "--ranks-per-node", "1", "--calls",
                                          "allreduce", "--rate", "10", "--duration", "8"});
  WaitForSegments(segments_.File("0"), 1);
  const exporter::Finished trace =
      exporter::RunToEnd(TraceCommand(segments_.File("0"), "steps", "trace.json.gz"));
  ASSERT_EQ(trace.exit_code, 0) << trace.output;
  ASSERT_EQ(job->Wait(), 0) << job->AllOutput();
  const size_t communicators = ForEachDetail(
      Read("trace.json.gz"), ReadTruth(Path("truth.json")),
      [&](const TracedCommunicator&, const TracedDetail& detail, const nlohmann::json& of_truth) {
        ExpectNothingLost(detail);
        EXPECT_TRUE(detail.has_steps);
        std::vector<size_t> steps(detail.network_operations.size());
        std::vector<int64_t> ends(steps.size(), 0);
        for (const collector::TracedStep& step : detail.steps) {
          const size_t i = step.network_operation;
          ++steps[i];
          // Steps of an operation follow each other without overlap.
          EXPECT_GE(step.end_ns - step.LengthNs(), ends[i]);
          ends[i] = step.end_ns;
        }
        for (const bool is_send : {true, false}) {
          const nlohmann::json& reported =
              of_truth["network"][is_send ? "send" : "recv"]["reported"];
          const auto operations = reported["operations"].get<size_t>();
          ASSERT_GT(operations, 0u);
          // All operations of the job have one size here.
          ASSERT_EQ(reported["steps"].get<size_t>() % operations, 0u);
          size_t traced = 0;
          for (size_t i = 0; i < steps.size(); ++i) {
            if (detail.network_operations[i].is_send != is_send) continue;
            EXPECT_EQ(steps[i], reported["steps"].get<size_t>() / operations);
            EXPECT_TRUE(detail.network_operations[i].operation.has_value());
            ++traced;
          }
          EXPECT_GT(traced, 5u);
          EXPECT_LT(traced, operations);
        }
      });
  EXPECT_EQ(communicators, 1u);
}

// Killed at a random moment, and the next one is served; the job's own counts are exact.
// bazel test //tests/system:trace_detail_test --test_env=KILLED_REQUESTERS=1000
TEST_F(TraceDetailTest, RequestersThatAreKilledDoTheJobNoHarm) {
  const char* wanted = std::getenv("KILLED_REQUESTERS");
  const int requesters = wanted != nullptr ? std::atoi(wanted) : 12;
  const auto job =
      StartJob(segments_.path(), {"--ranks-per-node", "2", "--layout", "dp", "--rate", "50",
                                  "--duration", std::to_string(10 + requesters * 2 / 5)});
  WaitForSegments(segments_.path(), 2);
  std::mt19937 random(4711);
  for (int i = 0; i < requesters; ++i) {
    exporter::ChildProcess requester(
        TraceCommand(segments_.path(), i % 2 == 0 ? "channels" : "steps", "killed.json.gz", "60"));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 400));
    requester.Signal(SIGKILL);
    requester.Wait();
  }
  const exporter::Finished trace =
      exporter::RunToEnd(TraceCommand(segments_.path(), "channels", "trace.json.gz", "1"));
  EXPECT_EQ(trace.exit_code, 0) << trace.output;
  ASSERT_EQ(job->Wait(), 0) << job->AllOutput();
  const nlohmann::json truth = ReadTruth(Path("truth.json"));
  size_t operations = 0;
  ForEachDetail(Read("trace.json.gz"), truth,
                [&](const TracedCommunicator&, const TracedDetail& detail, const nlohmann::json&) {
                  ExpectNothingLost(detail);
                  operations += detail.operations.size();
                });
  EXPECT_GT(operations, 10u);
  ExpectSegmentsEqualTruth(segments_.path(), truth);
}

TEST_F(TraceDetailTest, ASecondRequesterIsRefusedWhileOneRuns) {
  const auto job = StartJob(segments_.path(), {"--ranks-per-node", "2", "--layout", "dp", "--rate",
                                               "50", "--duration", "8"});
  WaitForSegments(segments_.path(), 2);
  exporter::ChildProcess first(TraceCommand(segments_.path(), "channels", "first.json.gz", "3"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const exporter::Finished second =
      exporter::RunToEnd(TraceCommand(segments_.path(), "steps", "second.json.gz", "1"));
  EXPECT_THAT(second.output, testing::HasSubstr("another request is running"));
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_THAT(first.AllOutput(), testing::Not(testing::HasSubstr("no channels")));
  EXPECT_FALSE(
      Read("first.json.gz").at(0).processes.at(0).communicators.at(0).detail->channels.empty());
  EXPECT_EQ(job->Wait(), 0);
}

// By the kernel's rule for /proc/PID/fd.
TEST_F(TraceDetailTest, AStrangerIsRefusedByTheKernel) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can run a program as another user";
  const auto job = StartJob(segments_.path(), {"--ranks-per-node", "1", "--layout", "dp", "--rate",
                                               "50", "--duration", "5"});
  WaitForSegments(segments_.path(), 1);
  std::filesystem::permissions(segments_.path(), std::filesystem::perms::all);
  Options command{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  const Options trace{std::filesystem::canonical(kDaemonPath),
                      "--segment.dir=" + segments_.path(),
                      "trace",
                      "--level",
                      "channels",
                      "--seconds",
                      "1"};
  command.insert(command.end(), trace.begin(), trace.end());
  exporter::ChildProcess stranger(command);
  EXPECT_EQ(stranger.Wait(), 0) << stranger.AllOutput();
  EXPECT_THAT(stranger.ErrorOutput(),
              testing::HasSubstr("no channels and no steps: its files cannot be listed"));
  EXPECT_EQ(job->Wait(), 0);
}

}  // namespace
}  // namespace nccl_exporter
