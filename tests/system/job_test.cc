// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter job` against a real Prometheus, which scrapes a real daemon with a simulated job
// and has the shipped rules: by TLS, with a password; and of a job that hangs, with the same rules
// in shorter times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exporter/testing/test_certificates.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

using testing::HasSubstr;

constexpr char kRules[] = "deploy/prometheus/nccl-exporter.rules.yml";

class JobTest : public testing::Test {
 protected:
  JobTest() : daemon_(segments_.path()), port_(FreePort()) {
    const exporter::TestAuthority authority;
    const exporter::TestAuthority::Issued server = authority.Issue({"DNS:localhost"});
    Write("ca.pem", authority.certificate());
    Write("server.pem", server.certificate);
    Write("server.key", server.key);
    // The password is secret.
    Write("web.yml",
          "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
          "basic_auth_users: {alice: "
          "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}\n");
    Write("prometheus.yml",
          "global: {scrape_interval: 1s}\nrule_files: ['" +
              std::filesystem::absolute(kRules).string() +
              "']\nscrape_configs:\n- job_name: nccl\n  static_configs: [{targets: ['127.0.0.1:" +
              std::to_string(daemon_.port()) + "']}]\n");
    prometheus_ = std::make_unique<exporter::ChildProcess>(std::vector<std::string>{
        "/usr/bin/prometheus", "--config.file=" + Path("prometheus.yml"),
        "--storage.tsdb.path=" + Path("data"), "--web.config.file=" + Path("web.yml"),
        "--web.listen-address=127.0.0.1:" + std::to_string(port_)});
  }

  std::string Path(const std::string& name) const { return scratch_.path() + '/' + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }
  exporter::Finished Job(const std::vector<std::string>& options) const {
    std::vector<std::string> command{kDaemonPath, "job",
                                     "--prometheus=https://localhost:" + std::to_string(port_)};
    command.insert(command.end(), options.begin(), options.end());
    return exporter::RunToEnd(command);
  }

  collector::ScratchDirectory segments_, scratch_;
  Daemon daemon_;
  const int port_;
  std::unique_ptr<exporter::ChildProcess> prometheus_;
};

TEST_F(JobTest, ShowsAJobAndRefusesInOneLine) {
  exporter::ChildProcess job(SimulatorCommand(segments_.path(), Path("truth.json"),
                                              {"--steps", "20", "--ranks-per-node", "4",
                                               "--slurm-job-id", "4711", "--hold", "600"}),
                             {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
  Write("http.yml",
        "basic_auth: {username: alice, password: secret}\n"
        "tls_config: {ca_file: ca.pem}\n");
  const std::string config = "--http.config.file=" + Path("http.yml");
  // The rules are evaluated first after up to 15 s.
  exporter::Finished shown;
  ASSERT_TRUE(exporter::Eventually([&] {
    shown = Job({config, "--job=4711"});
    return shown.exit_code == 0 && shown.output.find("4 processes") != std::string::npos;
  })) << shown.output
      << prometheus_->AllOutput();
  EXPECT_THAT(shown.output, HasSubstr("Job 4711 of user "));
  EXPECT_THAT(shown.output, HasSubstr("No alert fires."));
  // A query that is wrong has no answer, and series of the rules come after 15 s.
  nlohmann::json json;
  ASSERT_TRUE(exporter::Eventually([&] {
    json = nlohmann::json::parse(Job({config, "--json"}).output);
    return !json["series"].empty();
  })) << json;
  EXPECT_EQ(json["job"]["nccl_job"], "4711");
  EXPECT_EQ(json["job"]["processes"], 4);
  EXPECT_GT(json["rules_evaluated"], 0);
  EXPECT_EQ(json["series"].back()["name"], "comm:nccl_progress:changes");
  EXPECT_EQ(json["series"].back()["labels"]["nccl_job"], "4711");

  const auto refused = [&](const std::vector<std::string>& options) {
    const exporter::Finished finished = Job(options);
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_EQ(finished.output.find('\n') + 1, finished.output.size()) << "one line";
    return finished.output;
  };
  EXPECT_THAT(refused({config, "--job=4712"}),
              HasSubstr("no job has nccl_job='4712'; there is job 4711 of user "));
  EXPECT_THAT(refused({}), HasSubstr(": TLS: The certificate is NOT trusted."));
  Write("http.yml", "tls_config: {ca_file: ca.pem}\n");
  EXPECT_THAT(refused({config}), HasSubstr("asks for a login (401)"));
}

struct Hang {
  const char* name;
  const char* scrapes;        // parts that are scraped
  const char* kernel_timing;  // off: completions are not seen
};

class JobHangTest : public testing::TestWithParam<Hang> {
 protected:
  JobHangTest()
      : daemon_(segments_.path(), {"--segment.retention=20s", "--findings.time-scale=15"}),
        port_(FreePort()) {
    const exporter::Finished rules =
        exporter::RunToEnd({"/usr/bin/python3", "deploy/prometheus/generate-rules", "--time-scale",
                            "15", "--output", scratch_.path()});
    EXPECT_EQ(rules.exit_code, 0) << rules.output;
    std::ofstream(scratch_.path() + "/prometheus.yml")
        << "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: ['"
        << scratch_.path() << "/nccl-exporter.rules.yml']\nscrape_configs:\n- job_name: nccl\n"
        << "  params: {'collect[]': [" << GetParam().scrapes
        << "]}\n  static_configs: [{targets: ['127.0.0.1:" << daemon_.port() << "']}]\n";
    prometheus_ = std::make_unique<exporter::ChildProcess>(std::vector<std::string>{
        "/usr/bin/prometheus", "--config.file=" + scratch_.path() + "/prometheus.yml",
        "--storage.tsdb.path=" + scratch_.path() + "/data", "--query.lookback-delta=20s",
        "--web.listen-address=127.0.0.1:" + std::to_string(port_)});
  }

  // Null while there is none.
  nlohmann::json Shown() const {
    const exporter::Finished job = exporter::RunToEnd(
        {kDaemonPath, "job", "--prometheus=http://127.0.0.1:" + std::to_string(port_), "--json"});
    return job.exit_code == 0 ? nlohmann::json::parse(job.output) : nlohmann::json();
  }

  collector::ScratchDirectory segments_, scratch_;
  Daemon daemon_;
  const int port_;
  std::unique_ptr<exporter::ChildProcess> prometheus_;
};

// All others wait for rank 5, in groups in which some of them are behind as well.
TEST_P(JobHangTest, ShowsTheRankThatDoesNotCallAndNoOther) {
  exporter::ChildProcess job(
      SimulatorCommand(segments_.path(), scratch_.path() + "/truth.json",
                       {"--layout", "3d", "--ranks-per-node", "8", "--pace", "real", "--rate", "5",
                        "--duration", "200", "--incident", "missing-call:rank=5,from=8"}),
      {{"NCCL_EXPORTER_KERNEL_TIMING", GetParam().kernel_timing}});
  nlohmann::json shown;
  const auto of_series = [&](const std::string& name) {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& series : shown["series"]) {
      if (series["name"] == name) found.push_back(series);
    }
    return found;
  };
  const auto is_named = [&] {
    exporter::SleepMilliseconds(500);
    shown = Shown();
    if (shown.is_null()) return false;
    for (const nlohmann::json& alert : shown["alerts"]) {
      EXPECT_EQ(alert["labels"].value("global_rank", "5"), "5") << alert;
      if (alert["labels"]["alertname"] != "NCCLHangCulprit") continue;
      return !of_series("process:nccl_hang:culprit").empty();  // a query may come in an evaluation
    }
    return false;
  };
  constexpr int kPatienceSeconds = 5;  // each of its looks takes half a second and more
  ASSERT_TRUE(exporter::Eventually(is_named, kPatienceSeconds))
      << shown << prometheus_->AllOutput();
  EXPECT_GT(shown["alerts"][0]["since"], 0);
  const std::vector<nlohmann::json> culprits = of_series("process:nccl_hang:culprit");
  ASSERT_EQ(culprits.size(), 1u);
  EXPECT_EQ(culprits[0]["labels"]["global_rank"], "5");
  EXPECT_GT(culprits[0]["value"], 0);
  double waiting = 0;
  for (const nlohmann::json& communicator : of_series("comm_rank:nccl_hang:waiting")) {
    EXPECT_EQ(communicator["labels"]["comm"].get<std::string>().size(), 16u);
    waiting += communicator["value"].get<double>();
  }
  EXPECT_GE(waiting, 7);
  for (const nlohmann::json& communicator : of_series("comm:nccl_progress:changes"))
    EXPECT_EQ(communicator["value"], 0) << communicator;
}

INSTANTIATE_TEST_SUITE_P(Scrapes, JobHangTest,
                         testing::Values(Hang{"AlertsAlone", "alerts", "on"},
                                         Hang{"CompletionsNotSeen", "alerts, detail", "off"}),
                         [](const auto& hang) { return std::string(hang.param.name); });

}  // namespace
}  // namespace nccl_exporter
