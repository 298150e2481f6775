// SPDX-License-Identifier: Apache-2.0
// The page with what a real daemon answers, and where there is no job to see.
#include <signal.h>

#include <string>

#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

TEST_F(PageTest, ShowsARealJobAndOutlivesTheDaemon) {
  const exporter::ChildProcess job(SimulatorCommand(
      page_->segment_directory(), page_->segment_directory() + "/truth.json",
      {"--layout", "dp", "--ranks-per-node", "8", "--pace", "real", "--rate", "8", "--duration",
       "240", "--slurm-job-id", "4242", "--env", "NCCL_EXPORTER_KERNEL_TIMING=on"}));
  page_->browser().Open(page_->daemon().Url("/"));
  ASSERT_TRUE(EventuallyShows("#processes-title", "8 of 8 run")) << Text("body");
  EXPECT_TRUE(EventuallyShows("#communicator-list", "8 ranks")) << Text("#communicator-list");
  EXPECT_THAT(Text("#communicator-list"), testing::HasSubstr("Job 4242 of user"));
  EXPECT_THAT(Text("#communicator-list"), testing::HasSubstr("GPU 0-7"));

  Click(kFirstRow);
  EXPECT_TRUE(EventuallyShows("#communicator-list", "AllReduce"));
  EXPECT_TRUE(EventuallyShows("#communicator-list", "on each of 8 ranks"));
  EXPECT_TRUE(exporter::Eventually(
      [&] {
        return Evaluate(
                   "[...document.querySelectorAll('.line')].some((line) => "
                   "line.getAttribute('d').includes('L'))") == true;
      },
      kPatienceSeconds))
      << "a line of two points and more";
  EXPECT_EQ(Evaluate("[...document.querySelectorAll('canvas')].some((map) => map.getContext('2d')"
                     ".getImageData(0, 0, map.width, map.height).data.some((byte) => byte > 0))"),
            true)
      << "no heat map is drawn";

  // The states have the fields that a daemon's answer has; the two that come later are left out.
  EXPECT_EQ(Evaluate("fetch('api/v1/node').then((answer) => answer.json()).then((real) => {"
                     "  const state = nodeInState('straggler'), comm = state.communicators[0];"
                     "  const missing = (known, other) => Object.keys(known).filter((name) => "
                     "    !(name in other) && name !== 'waiting');"
                     "  return [missing(state, real), missing(state.looked_at, real.looked_at),"
                     "    missing(state.processes[0], real.processes[0]),"
                     "    missing(state.directories[0], real.directories[0]),"
                     "    missing(comm, real.communicators[0]),"
                     "    missing(comm.local_ranks[0], real.communicators[0].local_ranks[0]),"
                     "    missing(comm.collectives[0], real.communicators[0].collectives[0])]"
                     "    .flat(); })"),
            json::array());

  const std::string started = Text("#communicator-list tbody td:nth-child(9)");
  EXPECT_TRUE(exporter::Eventually([&] {
    return Text("#communicator-list tbody td:nth-child(9)") != started;
  })) << "updates";

  page_->daemon().process().Signal(SIGKILL);
  EXPECT_TRUE(EventuallyShows("#state", "connection lost: no answer for"));
  EXPECT_THAT(Text("title"), testing::StartsWith("connection lost"));
  EXPECT_THAT(Text("#communicator-list"), testing::HasSubstr("AllReduce"))
      << "what was known stays";
  const exporter::ChildProcess next(
      {kDaemonPath, "--web.listen-address=127.0.0.1:" + std::to_string(page_->daemon().port()),
       "--segment.dir=" + page_->segment_directory()});
  EXPECT_TRUE(exporter::Eventually(
      [&] { return Evaluate("document.body.classList.contains('stale')") == false; },
      kPatienceSeconds));
  EXPECT_THAT(Text("title"), testing::Not(testing::HasSubstr("lost")));
}

TEST_F(PageTest, TheEmptyPageSaysWhereTheDaemonLooksAndWhatToSet) {
  Show("empty");
  EXPECT_EQ(Text("#headline"), "No process has made a communicator yet.");
  EXPECT_EQ(Evaluate("document.getElementById('lamp').className"), "lamp idle") << "not green";
  const std::string directories = Text("#directories");
  for (const char* part :
       {"/run/nccl-exportercan be read", "/dev/shm/nccl-exporterdoes not exist (yet)",
        "/dev/shm/nccl-exporter-*", "NCCL_PROFILER_PLUGIN=", "NCCL_EXPORTER_DIR="})
    EXPECT_THAT(directories, testing::HasSubstr(part));
  for (const char* part : {"communicators", "process-part", "loss-part"})
    EXPECT_EQ(Evaluate("document.getElementById('" + std::string(part) + "').checkVisibility()"),
              false)
        << part << " has nothing to show";
}

// The real daemon's answer, without a state.
TEST_F(PageTest, TheEmptyPageNamesTheRealDirectory) {
  page_->browser().Open(page_->daemon().Url("/"));
  EXPECT_TRUE(EventuallyShows("#directories", page_->segment_directory() + "can be read"))
      << Text("#directories");
}

TEST_F(PageTest, NamesUnreadableDirectoriesAndUnusableFiles) {
  Show("unreadable");
  EXPECT_THAT(Text("#headline"), testing::HasSubstr("/run/nccl-exporter of user 0 cannot be used"));
  EXPECT_EQ(Evaluate("document.title"), "● unusable files – node-1");
  const std::string directories = Text("#directories");
  EXPECT_THAT(directories, testing::HasSubstr("/run/nccl-exportercannot be readPermission denied"));
  EXPECT_THAT(directories, testing::HasSubstr("/dev/shm/nccl-exporter-1001/junk.seg"));
  EXPECT_THAT(directories, testing::Not(testing::HasSubstr("past.seg"))) << "it is repaired";
  EXPECT_EQ(Texts("#directory-tables .wide:nth-child(2) tbody tr").size(), 1u)
      << "a directory is no file";
}

}  // namespace
}  // namespace nccl_exporter
