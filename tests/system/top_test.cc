// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter top` over a simulated job: in a real terminal (tmux), and without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/eventually.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

constexpr int kPatienceSeconds = 60;

class TopTest : public testing::Test {
 protected:
  TopTest()
      : job_(
            SimulatorCommand(segments_.path(), segments_.path() + "/truth.json",
                             {"--layout", "dp", "--ranks-per-node", "8", "--pace", "real", "--rate",
                              "8", "--duration", "180", "--incident", "slow-rank:rank=5,percent=30",
                              "--env", "NCCL_EXPORTER_KERNEL_TIMING=on"})) {}

  const collector::ScratchDirectory segments_;
  exporter::ChildProcess job_;
};

TEST_F(TopTest, WithoutATerminalPrintsOneScreenWithoutControlSequences) {
  std::string output;
  EXPECT_TRUE(exporter::Eventually(
      [&] {
        const exporter::Finished top =
            exporter::RunToEnd({kDaemonPath, "--segment.dir=" + segments_.path(), "top"});
        EXPECT_EQ(top.exit_code, 0);
        output = top.output;
        return output.find("AllReduce") != std::string::npos &&
               output.find("8 processes") != std::string::npos;
      },
      kPatienceSeconds))
      << output;
  EXPECT_THAT(output, testing::Not(testing::HasSubstr("\x1b")));
  EXPECT_THAT(output, testing::HasSubstr("LAST TO ENTER"));
}

TEST_F(TopTest, RefusesAnOrderThatItDoesNotKnow) {
  const exporter::Finished top =
      exporter::RunToEnd({kDaemonPath, "top", "--once", "--sort=colour"});
  EXPECT_EQ(top.exit_code, 2);
  EXPECT_THAT(top.output, testing::HasSubstr("colour"));
}

// A tmux server of its own, with one window in which a shell runs `top` and then says how it ended.
class TopInTmuxTest : public TopTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/bin/tmux")) GTEST_SKIP() << "tmux is not installed";
    const std::string top = std::filesystem::absolute(kDaemonPath).string() +
                            " --segment.dir=" + segments_.path() + " top";
    const exporter::Finished made =
        Tmux({"-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40",
              "TERM=screen " + top + "; echo ended with $?; stty -a; exec sleep 1000"});
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }
  void TearDown() override {
    Tmux({"kill-server"});
    std::filesystem::remove(socket_);
  }

  exporter::Finished Tmux(std::vector<std::string> arguments) {
    std::vector<std::string> command{"tmux", "-S", socket_};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return exporter::RunToEnd(command, {{"LC_ALL", "C.UTF-8"}, {"TERM", "screen"}});
  }
  std::string Screen() { return Tmux({"capture-pane", "-p"}).output; }
  bool EventuallyShows(const std::string& text) {
    return exporter::Eventually([&] { return Screen().find(text) != std::string::npos; },
                                kPatienceSeconds);
  }

  // Below /tmp: the path of a socket has 107 bytes at most.
  const std::string socket_ = "/tmp/nccl-exporter-top-test-" + std::to_string(getpid());
};

TEST_F(TopInTmuxTest, UpdatesNamesTheLateRankSortsResizesAndQuits) {
  ASSERT_TRUE(EventuallyShows("8 processes")) << Screen();
  ASSERT_TRUE(EventuallyShows("rank 5 of dp (pid")) << Screen();
  EXPECT_THAT(Screen(), testing::HasSubstr("is late: the last to enter"));
  EXPECT_THAT(Screen(), testing::HasSubstr("q quit   s sort (by rank)"));

  const std::string first_line = Screen().substr(0, 19);
  EXPECT_TRUE(exporter::Eventually([&] { return Screen().substr(0, 19) != first_line; }))
      << "the time moves on";

  Tmux({"send-keys", "s", "s"});
  ASSERT_TRUE(EventuallyShows("(by late)")) << Screen();
  EXPECT_THAT(Screen(), testing::ContainsRegex("RANK[^\n]*\ndp +5 "))
      << "the late rank comes first";

  Tmux({"resize-window", "-x", "60", "-y", "16"});
  EXPECT_TRUE(exporter::Eventually([&] {
    const std::string screen = Screen();
    return std::ranges::count(screen, '\n') == 16 && screen.rfind("q quit") != std::string::npos &&
           screen.rfind("q quit") > screen.rfind("\ndp ");
  })) << Screen();

  Tmux({"send-keys", "q"});
  EXPECT_TRUE(EventuallyShows("ended with 0")) << Screen();
  EXPECT_THAT(Screen(), testing::Not(testing::HasSubstr("q quit"))) << "the first screen is back";
  EXPECT_THAT(Screen(), testing::Not(testing::HasSubstr("-icanon"))) << "the terminal is as it was";
}

}  // namespace
}  // namespace nccl_exporter
