// SPDX-License-Identifier: Apache-2.0
// The commands on files.
#include "exporter/trace/trace_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/gunzip.h"
#include "exporter/testing/simulated_nodes.h"
#include "exporter/trace/trace_page.h"
#include "exporter/trace/trace_section.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

class TraceCommandTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return scratch_.File(name); }
  std::string Text(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // Each node in a file of its own.
  std::vector<std::string> WriteNodes(const SimulatedJob& job) const {
    std::vector<std::string> paths;
    for (const collector::NodeTrace& node : job.nodes) {
      paths.push_back(Path(node.node + ".json.gz"));
      EXPECT_EQ(WriteTrace({.output = paths.back()}, node).fault, "");
    }
    return paths;
  }

  const collector::ScratchDirectory scratch_;
};

TEST_F(TraceCommandTest, MergesNodesAndSaysHowCloselyTheirClocksAreKnown) {
  const SimulatedJob job({.length_ns = 2 * kSecond});
  const std::vector<std::string> paths = WriteNodes(job);
  const TraceResult merged = MergeTraces({.output = Path("all.json.gz"), .files = paths});
  ASSERT_EQ(merged.fault, "");
  for (const char* const node : {"node-1", "node-2", "node-3"}) {
    EXPECT_THAT(merged.notes, testing::ContainsRegex(std::string(node) +
                                                     ": [+-][0-9.]+ us at the begin, [+-][0-9.]+ "
                                                     "us at the end, against node-0; uncertain by "
                                                     "[0-9]+[.][0-9] us\n"));
  }
  std::string fault;
  EXPECT_EQ(ReadTraceSection(Gunzip(Text("all.json.gz")), fault), job.nodes) << fault;
  const TraceResult again =
      MergeTraces({.output = Path("again.json"), .files = {Path("all.json.gz")}});
  EXPECT_EQ(Text("again.json"), Gunzip(Text("all.json.gz"))) << "a merged file is one";
}

TEST_F(TraceCommandTest, SummaryNamesTheLastAndWhatIsMissing) {
  SimulatedJob job({.nodes = 2, .length_ns = 2 * kSecond});
  collector::TracedCommunicator& communicator = job.nodes[1].processes[1].communicators[0];
  communicator.overwritten = 17;
  communicator.name = "dp\x1b[2J";
  job.nodes[1].processes[1].losses[0] = 3;
  const TraceResult summary = SummarizeTraces({.files = WriteNodes(job)});
  ASSERT_EQ(summary.fault, "");
  EXPECT_THAT(summary.text, HasSubstr("17 operations were overwritten before they were read"));
  EXPECT_THAT(summary.text, HasSubstr(": 3 losses since its start: "));
  EXPECT_THAT(summary.text, testing::ContainsRegex("LAST +OTHERS WAIT MS"));
  EXPECT_THAT(summary.text, testing::Not(HasSubstr("\x1b"))) << "safe on a terminal";
}

TEST_F(TraceCommandTest, NamesTheFileThatItCannotRead) {
  EXPECT_EQ(SummarizeTraces({.files = {Path("none")}}).fault,
            Path("none") + ": No such file or directory");
  std::ofstream(Path("text")) << "hello";
  EXPECT_EQ(MergeTraces({.files = {Path("text")}}).fault,
            Path("text") + ": it is no trace of nccl-exporter in Chrome's format, or damaged");
  std::ofstream(Path("gz")) << "\x1f\x8b hello";
  EXPECT_EQ(MergeTraces({.files = {Path("gz")}}).fault,
            Path("gz") + ": the compressed data are damaged, or more than 4 GiB");
  EXPECT_EQ(WriteTrace({.output = Path("no/file")}, SimulatedJob({.nodes = 1}).nodes[0]).fault,
            Path("no/file") + ": No such file or directory");
}

// Regression: a file of another node took as much memory as it liked.
TEST_F(TraceCommandTest, RefusesAFileWithMoreValuesThanATrace) {
  const std::string text =
      WriteTrace({}, SimulatedJob({.nodes = 1, .length_ns = kSecond}).nodes[0]).text;
  std::string fault;
  EXPECT_EQ(ReadTraceSection(text, fault).size(), 1u);
  EXPECT_TRUE(ReadTraceSection(text, fault, 1000).empty());
  EXPECT_EQ(fault, "it has more values than a trace");
}

TEST_F(TraceCommandTest, TakesTheProcessesOfAJob) {
  collector::NodeTrace node = SimulatedJob({.nodes = 1, .length_ns = kSecond}).nodes[0];
  node.processes[0].job = "4711";
  node.processes[1].pod = "train-0";
  const auto processes = [&](const std::string& job) {
    const TraceResult result = WriteTrace({.wanted = {job}}, node);
    std::string fault;
    const auto nodes = ReadTraceSection(result.text, fault);
    return result.fault.empty() ? nodes.at(0).processes.size() : 0;
  };
  EXPECT_EQ(processes("4711"), 1u);
  EXPECT_EQ(processes("train"), 1u);
  EXPECT_EQ(processes("trai"), 0u);
  EXPECT_EQ(WriteTrace({.wanted = {"4712"}}, node).fault,
            "no process of this job has a segment here");
}

TEST_F(TraceCommandTest, TheSuffixCompresses) {
  const collector::NodeTrace node = SimulatedJob({.nodes = 1, .length_ns = kSecond}).nodes[0];
  WriteTrace({.output = Path("a.json")}, node);
  WriteTrace({.output = Path("a.json.gz")}, node);
  EXPECT_EQ(Text("a.json"), WriteTrace({}, node).text);
  EXPECT_EQ(Gunzip(Text("a.json.gz")), Text("a.json"));
}

TEST(TracePageTest, AnswersWithTheLatestOperations) {
  std::chrono::nanoseconds asked{};
  AnswerBudget budget;
  TracePage page(
      [&](std::chrono::nanoseconds last) {
        asked = last;
        return SimulatedJob({.nodes = 1, .length_ns = kSecond}).nodes[0];
      },
      budget);
  const auto ask = [&](const std::string& name, const std::string& value) {
    return page.Answer(
        {.path = "/debug/trace", .accept = {}, .accept_encoding = {}, .query = {{name, value}}});
  };
  const HttpResponse plain = ask("last", "5s");
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(plain.content_type, "application/json");
  EXPECT_EQ(asked, std::chrono::seconds(5));
  std::string fault;
  EXPECT_EQ(ReadTraceSection(std::string(plain.bytes()), fault).size(), 1u) << fault;
  const HttpResponse gzip =
      page.Answer({.path = "/debug/trace", .accept = {}, .accept_encoding = "gzip"});
  EXPECT_EQ(asked, std::chrono::seconds(30));
  EXPECT_EQ(Gunzip(std::string(gzip.bytes())), plain.bytes());
  for (const char* const value : {"", "x", "2h", "-1"}) EXPECT_EQ(ask("last", value).status, 400);
  EXPECT_EQ(ask("first", "1s").status, 400);
}

}  // namespace
}  // namespace nccl_exporter::exporter
