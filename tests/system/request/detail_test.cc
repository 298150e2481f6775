// SPDX-License-Identifier: Apache-2.0
// Channels and steps on request, from the command through the plugin to the file, against the
// simulator's account.
#include <algorithm>
#include <climits>
#include <set>

#include "tests/system/request/request_fixture.h"

namespace nccl_exporter {
namespace {

class TraceDetailTest : public RequestTest {
 protected:
  static size_t DirectionOf(const collector::TracedNetworkOperation& operation) {
    return static_cast<size_t>(operation.is_send ? NetworkDirection::kSend
                                                 : NetworkDirection::kRecv);
  }
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

// All operations from the first one that was asked about up to the last one of the job, and their
// steps, whose number is that of the simulator's account. Their times cannot be more than what the
// metrics counted; that they are the same is //plugin/survival:survival_trace_test, and that those
// are the account's //tests/system:network_truth_test.
TEST_F(TraceDetailTest, StepsOfEveryNetworkOperationAreThereOnce) {
  for (const char* node : {"0", "1"}) std::filesystem::create_directory(segments_.File(node));
  const auto job =
      StartJob(segments_.path() + "/%n", {"--nodes", "2", "--ranks-per-node", "1", "--calls",
                                          "allreduce", "--rate", "10", "--duration", "10"});
  const std::string directory = segments_.File("0");
  WaitForSegments(directory, 1);
  exporter::ChildProcess trace(TraceCommand(directory, "steps", "trace.json.gz", "60"));
  ASSERT_EQ(job->Wait(), 0) << job->AllOutput();
  trace.Signal(SIGINT);
  ASSERT_EQ(trace.Wait(), 0) << trace.AllOutput();
  const auto node = Look(directory);
  const nlohmann::json truth = ReadTruth(Path("truth.json"));
  const size_t communicators = ForEachDetail(
      Read("trace.json.gz"), truth,
      [&](const TracedCommunicator& communicator, const TracedDetail& detail,
          const nlohmann::json& of_truth) {
        ExpectNothingLost(detail);
        EXPECT_TRUE(detail.has_steps);
        const Counts counts = CountsOf(*node, communicator.id);
        ASSERT_GT(detail.operations.size(), 20u);
        for (size_t i = 0; i < detail.operations.size(); ++i) {
          EXPECT_EQ(detail.operations[i].sequence, counts.completed - detail.operations.size() + i);
        }
        std::vector<size_t> steps(detail.network_operations.size());
        std::vector<int64_t> ends(steps.size(), 0);
        collector::NetworkCounts traced;
        for (const collector::TracedStep& step : detail.steps) {
          const size_t i = step.network_operation;
          ++steps[i];
          // Steps of an operation follow each other without overlap.
          EXPECT_GE(step.end_ns - step.LengthNs(), ends[i]);
          ends[i] = step.end_ns;
          auto& direction = traced.directions[DirectionOf(detail.network_operations[i])];
          for (size_t state = 0; state < kNetworkStateCount; ++state)
            direction.wait_ns[state] += static_cast<uint64_t>(step.state_ns[state]);
        }
        // All operations of the job have one size.
        for (size_t i = 0; i < steps.size(); ++i) {
          const collector::TracedNetworkOperation& operation = detail.network_operations[i];
          EXPECT_TRUE(operation.operation.has_value());
          EXPECT_EQ(operation.peer, 1 - static_cast<int>(communicator.rank));
          const nlohmann::json& reported =
              of_truth["network"][operation.is_send ? "send" : "recv"]["reported"];
          EXPECT_EQ(steps[i] * reported["operations"].get<size_t>(),
                    reported["steps"].get<size_t>());
          ++traced.directions[DirectionOf(operation)].operations;
        }
        for (size_t d = 0; d < kNetworkDirectionCount; ++d) {
          const collector::NetworkDirectionCounts& counted = counts.network.directions[d];
          EXPECT_EQ(traced.directions[d].operations * counts.completed,
                    counted.operations * detail.operations.size());
          for (size_t state = 0; state < kNetworkStateCount; ++state)
            EXPECT_LE(traced.directions[d].wait_ns[state], counted.wait_ns[state]);
        }
      });
  EXPECT_EQ(communicators, 1u);
}

// 4 KiB a step: each AllReduce has more steps than half the ring.
TEST_F(TraceDetailTest, WhatDoesNotFitIntoTheRingIsCountedAndNamed) {
  for (const char* node : {"0", "1"}) std::filesystem::create_directory(segments_.File(node));
  const auto job = StartJob(segments_.path() + "/%n",
                            {"--nodes", "2", "--ranks-per-node", "1", "--layout", "dp", "--rate",
                             "2", "--network-chunk", "4096", "--duration", "2.5"});
  const std::string directory = segments_.File("0");
  WaitForSegments(directory, 1);
  const auto pid = static_cast<pid_t>(Look(directory)->processes.at(0).pid);
  ::kill(pid, SIGSTOP);
  exporter::ChildProcess trace(TraceCommand(directory, "steps", "trace.json.gz", "60"));
  WaitForRequest(pid);
  trace.Signal(SIGSTOP);
  ::kill(pid, SIGCONT);
  ASSERT_EQ(job->Wait(), 0) << job->AllOutput();
  trace.Signal(SIGCONT);
  trace.Signal(SIGINT);
  ASSERT_EQ(trace.Wait(), 0) << trace.AllOutput();
  EXPECT_THAT(trace.ErrorOutput(), testing::HasSubstr("were lost: the ring was full"));
  const exporter::Finished summary =
      exporter::RunToEnd({kDaemonPath, "trace", "summary", Path("trace.json.gz")});
  EXPECT_THAT(summary.output, testing::HasSubstr("were lost: the ring was full"));
  const size_t communicators = ForEachDetail(
      Read("trace.json.gz"), ReadTruth(Path("truth.json")),
      [&](const TracedCommunicator&, const TracedDetail& detail, const nlohmann::json&) {
        EXPECT_GT(detail.lost_parts, 10000u);
        // A ring of 16 MiB holds more than these.
        EXPECT_GT(detail.steps.size(), 200000u);
      });
  EXPECT_EQ(communicators, 1u);
}

}  // namespace
}  // namespace nccl_exporter
