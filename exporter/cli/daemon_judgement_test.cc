// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/daemon_judgement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

constexpr int64_t kSecondNs = 1000000000;
const HttpAddress kAddress{.host = "127.0.0.1", .port = "9828"};
const WatchedDirectories kWatched{.boot_id = "boot-1", .ids = {"26:1"}};

PlainAnswer AnswerThatWatches(const WatchedDirectories& watched) {
  const json looked_at{{"seconds", 600},
                       {"communicators", 1},
                       {"compared_operations", 9},
                       {"learning_seconds", 0},
                       {"findings_left_out", 0},
                       {"not_remembered", 0},
                       {"communicators_across_nodes", 0}};
  const json answer{{"exporter", {{"start", 1700000000}}},
                    {"findings", json::array()},
                    {"looked_at", looked_at},
                    {"watches", {{"boot_id", watched.boot_id}, {"directories", watched.ids}}}};
  return {.status_line = "HTTP/1.1 200 OK",
          .status = 200,
          .body = answer.dump(),
          .fault = "",
          .is_connected = true};
}

std::string WhyNot(const PlainAnswer& answer) {
  const ShownJudgement judged = JudgementIn(answer, kAddress, kWatched);
  EXPECT_FALSE(judged.is_of_daemon);
  return judged.why_not_of_daemon;
}

TEST(DaemonJudgementTest, IsThatOfADaemonThatWatchesTheSame) {
  const ShownJudgement judged = JudgementIn(AnswerThatWatches(kWatched), kAddress, kWatched);
  ASSERT_TRUE(judged.is_of_daemon) << judged.why_not_of_daemon;
  EXPECT_EQ(judged.judgement.compared_operations, 9u);
  EXPECT_EQ(judged.since_realtime_ns, 1700000000 * kSecondNs);
}

TEST(DaemonJudgementTest, SaysWhyThereIsNone) {
  EXPECT_EQ(WhyNot({}), "no daemon at 127.0.0.1:9828");
  PlainAnswer answer = AnswerThatWatches(kWatched);
  answer.status = 401;
  EXPECT_EQ(WhyNot(answer), "the daemon at 127.0.0.1:9828 asks for a password");
  answer.status = 404;
  EXPECT_EQ(WhyNot(answer), "the daemon at 127.0.0.1:9828 answers with status 404");
  answer.fault = "no answer in time";
  EXPECT_EQ(WhyNot(answer), "the daemon at 127.0.0.1:9828: no answer in time");
  answer.status = 0;
  answer.status_line = "\x15\x03";
  EXPECT_EQ(WhyNot(answer), "the answer at 127.0.0.1:9828 is no plain HTTP");
  answer = AnswerThatWatches(kWatched);
  answer.body = "[]";
  EXPECT_THAT(WhyNot(answer),
              testing::StartsWith("the answer at 127.0.0.1:9828 is not understood"));
}

TEST(DaemonJudgementTest, IsNotThatOfAnotherNodeOrOfOtherDirectories) {
  EXPECT_EQ(WhyNot(AnswerThatWatches({.boot_id = "boot-2", .ids = kWatched.ids})),
            "the daemon at 127.0.0.1:9828 is on another node");
  EXPECT_EQ(WhyNot(AnswerThatWatches({.boot_id = "boot-1", .ids = {"26:1", "26:2"}})),
            "the daemon at 127.0.0.1:9828 watches other directories");
  EXPECT_TRUE(JudgementIn(AnswerThatWatches(kWatched), kAddress, std::nullopt).is_of_daemon)
      << "a command that watches nothing takes any";
}

TEST(DaemonJudgementTest, ASocketIsTrustedWhereOnlyTheDaemonCanPutIt) {
  const collector::ScratchDirectory scratch;  // in a directory that others write: see below
  const std::string directory = scratch.File("run");
  std::filesystem::create_directory(directory);
  const std::string path = directory + "/s";
  EXPECT_FALSE(IsProtectedSocket(path)) << "nothing is there";
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto is_protected = [&](mode_t of_above, mode_t of_directory) {
    EXPECT_EQ(::chmod(scratch.path().c_str(), of_above), 0);
    EXPECT_EQ(::chmod(directory.c_str(), of_directory), 0);
    return IsProtectedSocket(path);
  };
  EXPECT_EQ(is_protected(0755, 0755), ::geteuid() == 0);
  EXPECT_FALSE(is_protected(0755, 0777));
  EXPECT_FALSE(is_protected(0755, 0775));
  EXPECT_FALSE(is_protected(01777, 0755)) << "anybody could have made the directory";
  ::close(listener);
}

TEST(DaemonJudgementTest, DirectoriesAreTheSameByAnyPath) {
  const collector::ScratchDirectory scratch;
  std::filesystem::create_directory(scratch.File("a"));
  std::filesystem::create_directory(scratch.File("b"));
  std::filesystem::create_directory_symlink(scratch.File("a"), scratch.File("link"));
  const WatchedDirectories a = WatchedDirectoriesOf({scratch.File("a")});
  EXPECT_EQ(a.ids.size(), 1u);
  EXPECT_NE(a.boot_id, "");
  EXPECT_EQ(WatchedDirectoriesOf({scratch.File("link"), scratch.File("none"), scratch.File("a")}),
            a);
  EXPECT_NE(WatchedDirectoriesOf({scratch.File("b")}), a);
  const WatchedDirectories private_ones = WatchedDirectoriesOf({scratch.File("of-*")});
  EXPECT_THAT(private_ones.ids, testing::ElementsAre(testing::EndsWith("/of-*")));
}

TEST(DaemonAddressTest, IsOneOfThisNode) {
  const auto text_of = [](const char* url) {
    std::string fault;
    const std::optional<HttpAddress> address = ParseDaemonAddress(url, fault);
    EXPECT_EQ(address.has_value(), fault.empty()) << url;
    return address ? address->HostField() : "";
  };
  EXPECT_EQ(text_of("http://127.0.0.1:9828"), "127.0.0.1:9828");
  EXPECT_EQ(text_of("http://localhost:80"), "127.0.0.1:80");
  EXPECT_EQ(text_of("http://[::1]:9828"), "[::1]:9828");
  EXPECT_EQ(text_of("unix:/run/a.sock"), "/run/a.sock");
  for (const char* const wrong : {"", "127.0.0.1:9828", "https://127.0.0.1:9828", "unix:a.sock",
                                  "http://node-2:9828", "http://127.0.0.1:9828/metrics"})
    EXPECT_EQ(text_of(wrong), "") << wrong;
}

TEST(DaemonAddressTest, MayBeOneOfAnyNodeWhereThatIsAllowed) {
  std::string fault;
  const std::optional<HttpAddress> remote =
      ParseAnyDaemonAddress("https://node-2:9828/nccl", fault);
  ASSERT_TRUE(remote) << fault;
  EXPECT_TRUE(remote->is_tls);
  EXPECT_EQ(remote->Text(), "https://node-2:9828/nccl");
  EXPECT_EQ(ParseAnyDaemonAddress("unix:/run/a.sock", fault)->socket, "/run/a.sock");
  for (const char* const wrong : {"", "none", "node-2:9828", "unix:a.sock"})
    EXPECT_FALSE(ParseAnyDaemonAddress(wrong, fault)) << wrong;
}

TEST(ShownJudgementTest, SaysWhoseItIs) {
  Judgement own;
  own.communicators = 1;
  ShownJudgement shown = Shown(
      {.judgement = {}, .why_not_of_daemon = "no daemon at 127.0.0.1:9828"}, own, 100 * kSecondNs);
  EXPECT_EQ(shown.judgement.communicators, 1u);
  EXPECT_EQ(shown.Line(140 * kSecondNs), "Judged here for 40 s: no daemon at 127.0.0.1:9828.");
  EXPECT_EQ(shown.Line(100 * kSecondNs), "Judged here by one look: no daemon at 127.0.0.1:9828.");
  EXPECT_EQ(json(shown.Json()),
            (json{{"by", "command"}, {"since", 100}, {"reason", "no daemon at 127.0.0.1:9828"}}));
  shown = Shown({.judgement = Judgement{.findings = {}, .communicators = 7},
                 .is_of_daemon = true,
                 .since_realtime_ns = 1700000000 * kSecondNs},
                own, 0);
  EXPECT_EQ(shown.judgement.communicators, 7u);
  EXPECT_EQ(shown.Line(0), "Judged by the daemon since 2023-11-14 22:13 UTC.");
  EXPECT_EQ(json(shown.Json()), (json{{"by", "daemon"}, {"since", 1700000000}, {"reason", ""}}));
}

// A daemon that answers when it is released.
class DaemonWatchTest : public testing::Test {
 protected:
  std::promise<void> released_;
  DaemonWatch watch_{[release = released_.get_future().share()] {
    release.wait();
    return ShownJudgement{.judgement = {}, .is_of_daemon = true};
  }};
};

// Regression: the wait for the answer was before the first snapshot, and not beside it.
TEST_F(DaemonWatchTest, TheFirstScreenHasTheAnswerThatComesMeanwhile) {
  released_.set_value();
  EXPECT_TRUE(watch_.Latest().is_of_daemon);
}

TEST_F(DaemonWatchTest, ADaemonThatDoesNotAnswerHoldsNoScreen) {
  EXPECT_EQ(watch_.Latest().why_not_of_daemon, "the daemon has not answered yet");
  released_.set_value();
}

}  // namespace
}  // namespace nccl_exporter::exporter
