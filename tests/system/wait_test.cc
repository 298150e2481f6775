// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter wait` beside simulated jobs: each kind, the time-out, two jobs, TLS with a
// password, and a daemon that is restarted meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "exporter/testing/test_certificates.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class WaitTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return scratch_.path() + '/' + name; }

  void StartDaemon(std::vector<std::string> options = {}, const std::string& time_scale = "100") {
    options.insert(options.end(), {"--findings.time-scale=" + time_scale,
                                   "--findings.socket=" + Path("findings")});
    daemon_ = std::make_unique<Daemon>(segments_.path(), options);
  }
  std::unique_ptr<exporter::ChildProcess> Job(std::vector<std::string> options) const {
    options.insert(options.end(),
                   {"--pace", "real", "--duration", "300", "--rate", "20", "--ranks-per-node", "4",
                    "--layout", "dp", "--env", "NCCL_EXPORTER_KERNEL_TIMING=on"});
    return std::make_unique<exporter::ChildProcess>(
        SimulatorCommand(segments_.path(), Path("truth.json"), options));
  }
  std::unique_ptr<exporter::ChildProcess> Hang(const std::string& job) const {
    return Job({"--slurm-job-id", job, "--incident", "missing-call:rank=1,from=4"});
  }
  std::unique_ptr<exporter::ChildProcess> Wait(const std::vector<std::string>& options,
                                               const std::string& daemon = "") const {
    std::vector<std::string> command{kDaemonPath, "wait",
                                     "--daemon=" + (daemon.empty() ? daemon_->Url("") : daemon)};
    command.insert(command.end(), options.begin(), options.end());
    return std::make_unique<exporter::ChildProcess>(command);
  }

  collector::ScratchDirectory segments_, scratch_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(WaitTest, EndsWithTheHangOfItsJob) {
  StartDaemon();
  const auto other = Job({"--slurm-job-id", "4712"}), job = Hang("4711");
  const auto of_other = Wait({"--job=4712", "--timeout=20s"});
  const auto wait = Wait({"--for=hang,killed", "--job=4711", "--timeout=90s"});
  EXPECT_EQ(wait->Wait(), 10);
  EXPECT_EQ(wait->ErrorOutput(), "");
  const json finding = json::parse(wait->Output());
  EXPECT_EQ(finding["kind"], "hang_culprit");
  EXPECT_EQ(finding["severity"], "critical");
  EXPECT_EQ(finding["nccl_job"], "4711");
  EXPECT_EQ(finding["culprits"][0]["global_rank"], "1");
  EXPECT_EQ(of_other->Wait(), 124);
  EXPECT_EQ(of_other->Output(), "");
  EXPECT_EQ(of_other->ErrorOutput(), "nccl-exporter: no finding in 20 s\n");
}

TEST_F(WaitTest, EndsWithAKilledRank) {
  StartDaemon();
  const auto job = Job({"--slurm-job-id", "4711", "--kill-rank", "2", "--kill-step", "60"});
  const auto wait = Wait({"--job=4711", "--timeout=90s"}, "unix:" + Path("findings"));
  EXPECT_EQ(wait->Wait(), 11);
  EXPECT_EQ(json::parse(wait->Output())["culprits"][0]["standing"], "killed");
}

TEST_F(WaitTest, EndsWithALateRank) {
  StartDaemon({}, "15");
  const auto job = Job({"--compute-share", "0.6", "--incident", "slow-rank:rank=2,percent=50"});
  const auto wait = Wait({"--for=late", "--timeout=150s"});
  EXPECT_EQ(wait->Wait(), 12);
  EXPECT_EQ(json::parse(wait->Output())["culprits"][0]["rank"], 2);
}

TEST_F(WaitTest, GoesOnOverARestartOfTheDaemonAndMentionsItOnce) {
  const int port = FreePort();
  const std::string address = "http://127.0.0.1:" + std::to_string(port);
  const std::vector<std::string> at_port{"--web.listen-address=127.0.0.1:" + std::to_string(port)};
  const auto wait = Wait({"--timeout=120s"}, address);
  const std::string line =
      "nccl-exporter: no daemon at 127.0.0.1:" + std::to_string(port) + "; still waiting";
  EXPECT_EQ(wait->ReadErrorLine(), line) << "none was there";
  StartDaemon(at_port);
  exporter::SleepMilliseconds(5000);  // two questions
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  EXPECT_EQ(wait->ReadErrorLine(), line) << "it is gone";
  exporter::SleepMilliseconds(5000);
  StartDaemon(at_port);
  const auto job = Hang("4711");
  EXPECT_EQ(wait->Wait(), 10);
  EXPECT_EQ(wait->ErrorOutput(), "") << "each time once";
}

TEST_F(WaitTest, SaysThatNoDaemonHasAnswered) {
  const auto wait = Wait({"--timeout=3"}, "http://127.0.0.1:" + std::to_string(FreePort()));
  EXPECT_EQ(wait->Wait(), 124);
  EXPECT_THAT(wait->ErrorOutput(), HasSubstr("\nnccl-exporter: no answer of a daemon in 3.0 s: no "
                                             "daemon at 127.0.0.1:"));
}

TEST_F(WaitTest, SpeaksTlsAndHasAPassword) {
  const exporter::TestAuthority authority;
  const exporter::TestAuthority::Issued server = authority.Issue({"IP:127.0.0.1"});
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
  };
  write("ca.pem", authority.certificate());
  write("server.pem", server.certificate);
  write("server.key", server.key);
  // The password is secret.
  write("web.yml",
        "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
        "basic_auth_users: {alice: "
        "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}\n");
  write("http.yml",
        "basic_auth: {username: alice, password: secret}\ntls_config: {ca_file: ca.pem}\n");
  const int port = FreePort();
  exporter::ChildProcess daemon(
      {kDaemonPath, "--web.listen-address=127.0.0.1:" + std::to_string(port),
       "--segment.dir=" + segments_.path(), "--web.config.file=" + Path("web.yml"),
       "--findings.time-scale=100", "--findings.socket="});
  const std::string address = "https://127.0.0.1:" + std::to_string(port);
  const auto job = Hang("4711");
  const auto without = Wait({"--timeout=3"}, address);
  const auto wait = Wait({"--timeout=120s", "--http.config.file=" + Path("http.yml")}, address);
  EXPECT_EQ(wait->Wait(), 10) << wait->ErrorOutput();
  EXPECT_EQ(without->Wait(), 124);
  EXPECT_THAT(without->ErrorOutput(), HasSubstr("TLS: "));
}

}  // namespace
}  // namespace nccl_exporter
