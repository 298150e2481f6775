// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter top` over a simulated job: in a real terminal (tmux), and without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/eventually.h"
#include "exporter/testing/tmux.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

constexpr int kPatienceSeconds = 60;

std::string Url(const Daemon& daemon) { return "--daemon=" + daemon.Url(""); }

// First line of `inflight` with these flags, where nothing runs: it names the judge.
std::string FirstLine(const std::vector<std::string>& flags) {
  std::vector<std::string> command{kDaemonPath, "inflight"};
  command.insert(command.end(), flags.begin(), flags.end());
  const exporter::Finished in_flight = exporter::RunToEnd(command);
  EXPECT_EQ(in_flight.exit_code, 0) << in_flight.output;
  return in_flight.output.substr(0, in_flight.output.find('\n'));
}

TEST(JudgeOfCommandsTest, IsTheDaemonThatWatchesTheSameDirectories) {
  const collector::ScratchDirectory watched, other;
  const Daemon daemon(watched.path());
  const std::string at = "127.0.0.1:" + std::to_string(daemon.port());
  EXPECT_THAT(FirstLine({"--segment.dir=" + watched.path(), Url(daemon)}),
              testing::StartsWith("Judged by the daemon since 20"));
  EXPECT_EQ(FirstLine({"--segment.dir=" + other.path(), Url(daemon)}),
            "Judged here by one look: the daemon at " + at + " watches other directories.");
  EXPECT_EQ(FirstLine({"--segment.dir=" + watched.path(), "--daemon=none"}),
            "Judged here by one look: --daemon=none.");
  EXPECT_EQ(FirstLine({"--segment.dir=" + watched.path(),
                       "--daemon=http://127.0.0.1:" + std::to_string(FreePort())})
                .substr(0, 38),
            "Judged here by one look: no daemon at ");
}

TEST(JudgeOfCommandsTest, IsNoDaemonWithAPassword) {
  const collector::ScratchDirectory watched;
  const std::string config = watched.File("web.yml");
  std::ofstream(config)
      << "basic_auth_users: {alice: $2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}";
  const int port = FreePort();
  const std::string at = "127.0.0.1:" + std::to_string(port);
  exporter::ChildProcess daemon({kDaemonPath, "--web.listen-address=" + at,
                                 "--web.config.file=" + config, "--segment.dir=" + watched.path()});
  std::string line;
  EXPECT_TRUE(exporter::Eventually([&] {
    line = FirstLine({"--segment.dir=" + watched.path(), "--daemon=http://" + at});
    return line == "Judged here by one look: the daemon at " + at + " asks for a password.";
  })) << line;
}

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
  EXPECT_THAT(output, testing::HasSubstr("\nJudged here for "));
  EXPECT_THAT(output, testing::HasSubstr("\nLate ranks are not judged: that takes minutes."));
}

TEST_F(TopTest, JsonHasFindingsAndRanks) {
  nlohmann::json top;
  EXPECT_TRUE(exporter::Eventually(
      [&] {
        const exporter::Finished finished =
            exporter::RunToEnd({kDaemonPath, "top", "--json", "--segment.dir=" + segments_.path()});
        EXPECT_EQ(finished.exit_code, 0);
        top = nlohmann::json::parse(finished.output);
        return top["communicators"].size() == 1 &&
               top["communicators"][0]["local_ranks"].size() == 8;
      },
      kPatienceSeconds))
      << top;
  EXPECT_EQ(top["judged"]["by"], "command");
  EXPECT_EQ(top["findings"], nlohmann::json::array()) << "one second accuses nobody";
  EXPECT_EQ(top["communicators"][0]["local_ranks"][5]["rank"], 5);
}

// A shell that runs `top` in a terminal and then says how it ended.
class TopInTmuxTest : public TopTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(exporter::kTmux)) GTEST_SKIP() << "tmux is not installed";
  }

  void Start(int columns, int rows, const std::string& environment) {
    const std::string top =
        std::filesystem::absolute(kDaemonPath).string() + " top --segment.dir=" + segments_.path();
    tmux_ = std::make_unique<exporter::Tmux>(
        environment + " " + top + "; echo ended with $?; stty -a; exec sleep 1000", columns, rows);
  }

  std::string Screen() const { return tmux_->Screen(); }
  bool EventuallyShows(const std::string& text) const {
    return exporter::Eventually([&] { return Screen().find(text) != std::string::npos; },
                                kPatienceSeconds);
  }

  bool EventuallyMatches(const std::string& expression) const {
    return exporter::Eventually([&] { return std::regex_search(Screen(), std::regex(expression)); },
                                kPatienceSeconds);
  }

  std::unique_ptr<exporter::Tmux> tmux_;
};

TEST_F(TopInTmuxTest, UpdatesScrollsResizesAndQuits) {
  Start(120, 40, "TERM=screen");
  ASSERT_TRUE(EventuallyShows("8 processes")) << Screen();
  ASSERT_TRUE(EventuallyShows("ranks 1-8 of 8")) << Screen();
  EXPECT_THAT(Screen(), testing::HasSubstr("up down PgUp PgDn  q quit"));

  const std::string first_line = Screen().substr(0, 19);
  EXPECT_TRUE(exporter::Eventually([&] { return Screen().substr(0, 19) != first_line; }))
      << "the time moves on";

  tmux_->Resize(60, 16);
  EXPECT_TRUE(exporter::Eventually([&] {
    const std::string screen = Screen();
    return std::ranges::count(screen, '\n') == 16 && screen.rfind("q quit") != std::string::npos &&
           screen.rfind("q quit") > screen.rfind("dp  ");
  })) << Screen();
  tmux_->Resize(60, 12);
  ASSERT_TRUE(EventuallyMatches("ranks 1-[1-7] of 8")) << Screen();
  tmux_->Type({"NPage", "NPage", "NPage", "NPage"});
  ASSERT_TRUE(EventuallyMatches("ranks [2-8]-8 of 8")) << Screen();
  tmux_->Type({"PPage", "PPage", "PPage", "PPage", "Down"});
  ASSERT_TRUE(EventuallyShows("ranks 2-")) << Screen();

  tmux_->Resize(60, 16);
  tmux_->Type({"q"});
  EXPECT_TRUE(EventuallyShows("ended with 0")) << Screen();
  EXPECT_THAT(Screen(), testing::Not(testing::HasSubstr("q quit"))) << "the first screen is back";
  EXPECT_THAT(Screen(), testing::Not(testing::HasSubstr("-icanon"))) << "the terminal is as it was";
}

TEST_F(TopInTmuxTest, ASmallScreenHasWhatMattersAndItsKeys) {
  Start(80, 24, "TERM=screen");
  ASSERT_TRUE(EventuallyShows("ranks 1-8 of 8")) << Screen();
  EXPECT_THAT(Screen(), testing::ContainsRegex("FOR +LAST TO ENTER +LATE BY\n"));

  tmux_->Type({"x", "q"});
  EXPECT_TRUE(EventuallyShows("ended with 0")) << Screen();
}

TEST_F(TopInTmuxTest, ADumbTerminalGetsOneScreen) {
  Start(120, 40, "TERM=dumb");
  ASSERT_TRUE(EventuallyShows("ended with 0")) << Screen();
  EXPECT_THAT(Screen(), testing::HasSubstr("8 processes"));
}

TEST_F(TopInTmuxTest, NoColorIsObeyed) {
  Start(80, 24, "NO_COLOR=1 TERM=screen");
  ASSERT_TRUE(EventuallyShows("ranks 1-8 of 8")) << Screen();
  EXPECT_THAT(tmux_->ScreenWithStyles(), testing::Not(testing::HasSubstr("\x1b[1m")));
}

// A daemon has found the late rank before any command starts.
class TopAfterTheDaemonTest : public testing::Test {
 protected:
  static constexpr const char* kTimeScale = "--findings.time-scale=15";
  static constexpr int kFindingSeconds = 150;

  bool EventuallyFindsTheLateRank() {
    return exporter::Eventually(
        [&] {
          exporter::SleepMilliseconds(500);
          const nlohmann::json answer =
              nlohmann::json::parse(daemon_.Get("/api/v1/findings").body, nullptr, false);
          for (const nlohmann::json& finding : answer.value("findings", nlohmann::json::array())) {
            if (finding["kind"] == "late_rank" && finding["culprits"][0]["rank"] == 5) return true;
          }
          return false;
        },
        kFindingSeconds);
  }

  const collector::ScratchDirectory segments_;
  exporter::ChildProcess job_{
      SimulatorCommand(segments_.path(), segments_.path() + "/truth.json",
                       {"--layout", "dp", "--ranks-per-node", "8", "--pace", "real", "--rate", "5",
                        "--compute-share", "0.6", "--duration", "400", "--incident",
                        "slow-rank:rank=5,percent=50", "--env", "NCCL_EXPORTER_KERNEL_TIMING=on"})};
  Daemon daemon_{segments_.path(), {kTimeScale}};
  const std::vector<std::string> flags_{"--segment.dir=" + segments_.path(), Url(daemon_)};
};

TEST_F(TopAfterTheDaemonTest, TheFirstScreenNamesTheLateRank) {
  ASSERT_TRUE(EventuallyFindsTheLateRank()) << daemon_.Get("/api/v1/findings").body;
  const exporter::Finished once =
      exporter::RunToEnd({kDaemonPath, "top", "--once", flags_[0], flags_[1]});
  EXPECT_THAT(once.output, testing::HasSubstr("\nJudged by the daemon since "));
  EXPECT_THAT(once.output, testing::ContainsRegex("rank 5 \\(|rank 5 of dp"));
  EXPECT_THAT(once.output, testing::Not(testing::HasSubstr("Late ranks are not judged")));
  const exporter::Finished in_flight =
      exporter::RunToEnd({kDaemonPath, "inflight", "--json", flags_[0], flags_[1]});
  const nlohmann::json found = nlohmann::json::parse(in_flight.output);
  EXPECT_EQ(found["judged"]["by"], "daemon");
  EXPECT_EQ(found["findings"][0]["kind"], "late_rank");

  if (!std::filesystem::exists(exporter::kTmux)) GTEST_SKIP() << "tmux is not installed";
  exporter::Tmux terminal("TERM=screen " + std::filesystem::absolute(kDaemonPath).string() +
                              " top " + flags_[0] + " " + flags_[1],
                          80, 24);
  std::string screen;
  EXPECT_TRUE(exporter::Eventually(
      [&] {
        screen = terminal.Screen();
        return screen.find("q quit") != std::string::npos;
      },
      kPatienceSeconds))
      << screen;
  EXPECT_THAT(screen, testing::HasSubstr("\nJudged by the daemon since "));
  EXPECT_THAT(screen, testing::ContainsRegex("RANK[^\n]*\ndp +5 [^\n]*late"))
      << "the culprit is the first row, with its state";
  EXPECT_THAT(screen, testing::HasSubstr("\nCost: "));
}

}  // namespace
}  // namespace nccl_exporter
