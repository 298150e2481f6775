// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter report` against a real Prometheus, which scrapes a real daemon with a simulated
// job and has the shipped rules: by TLS, with a password; after the end of a job, beside the
// simulator's own account; and of a job that hangs, with the same rules in shorter times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "exporter/testing/test_certificates.h"
#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kRules[] = "deploy/prometheus/nccl-exporter.rules.yml";

class ReportTest : public testing::Test {
 protected:
  ReportTest() : daemon_(segments_.path()), port_(FreePort()) {
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
    Write("http.yml",
          "basic_auth: {username: alice, password: secret}\n"
          "tls_config: {ca_file: ca.pem}\n");
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
  exporter::Finished Report(const std::vector<std::string>& options) const {
    std::vector<std::string> command{kDaemonPath, "report",
                                     "--prometheus=https://localhost:" + std::to_string(port_)};
    command.insert(command.end(), options.begin(), options.end());
    return exporter::RunToEnd(command);
  }
  std::vector<std::string> Simulation(std::vector<std::string> options) const {
    options.insert(options.end(), {"--ranks-per-node", "4", "--slurm-job-id", "4711"});
    return SimulatorCommand(segments_.path(), Path("truth.json"), std::move(options));
  }

  collector::ScratchDirectory segments_, scratch_;
  Daemon daemon_;
  const int port_;
  std::unique_ptr<exporter::ChildProcess> prometheus_;
};

TEST_F(ReportTest, ShowsAJobAndRefusesInOneLine) {
  exporter::ChildProcess job(Simulation({"--steps", "20", "--hold", "600"}),
                             {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
  const std::string config = "--http.config.file=" + Path("http.yml");
  exporter::Finished shown;
  ASSERT_TRUE(exporter::Eventually([&] {
    shown = Report({config, "--job=4711"});
    return shown.exit_code == 0 && shown.output.find("4 processes") != std::string::npos &&
           shown.output.find("AllReduce") != std::string::npos;
  })) << shown.output
      << prometheus_->AllOutput();
  EXPECT_THAT(shown.output, HasSubstr("Job 4711 of user "));
  EXPECT_THAT(shown.output, HasSubstr("No alert fired, and no finding has lasted."));
  EXPECT_THAT(shown.output, HasSubstr(", from Prometheus\n"));
  const json jobs = json::parse(Report({config, "--json"}).output);
  ASSERT_EQ(jobs["jobs"].size(), 1u);
  EXPECT_EQ(jobs["jobs"][0]["labels"]["nccl_job"], "4711");
  EXPECT_EQ(jobs["jobs"][0]["processes"], 4);

  const auto refused = [&](const std::vector<std::string>& options) {
    const exporter::Finished finished = Report(options);
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_EQ(finished.output.find('\n') + 1, finished.output.size()) << "one line";
    return finished.output;
  };
  EXPECT_THAT(refused({config, "--job=4712"}),
              HasSubstr("no job has nccl_job='4712'; there is job 4711 of user "));
  EXPECT_THAT(refused({config, "--job=4711", "--at=2023-11-14T22:15"}),
              HasSubstr("no daemon was scraped, or no job ran"));
  EXPECT_THAT(refused({}), HasSubstr(": TLS: The certificate is NOT trusted."));
  Write("http.yml", "tls_config: {ca_file: ca.pem}\n");
  EXPECT_THAT(refused({config}), HasSubstr("asks for a login (401)"));
}

struct Sums {
  double operations = 0, timed = 0, bytes = 0, seconds = 0;
};
using Kind = std::pair<std::string, std::string>;  // communicator and function

std::map<Kind, Sums> TrueSums(const json& truth) {
  std::map<Kind, Sums> sums;
  for (const json& rank : truth["ranks"]) {
    for (const json& communicator : rank["communicators"]) {
      for (const auto& [function, counts] : communicator["functions"].items()) {
        for (const json& size : counts["sizes"]) {
          Sums& sum = sums[{communicator["name"].get<std::string>(), function}];
          sum.operations += size["operations"].get<double>();
          sum.timed += size["timed_operations"].get<double>();
          sum.bytes += size["bytes"].get<double>();
          sum.seconds += size["busy_ns"].get<double>() / 1e9;
        }
      }
    }
  }
  std::erase_if(sums, [](const auto& sum) { return sum.second.operations == 0; });
  return sums;
}

void ExpectTraffic(const json& report, const std::map<Kind, Sums>& expected) {
  EXPECT_EQ(report["traffic"].size(), expected.size());
  for (const json& row : report["traffic"]) {
    const auto sum =
        expected.find({row["comm_name"].get<std::string>(), row["collective"].get<std::string>()});
    ASSERT_NE(sum, expected.end()) << row;
    EXPECT_EQ(row["operations"], sum->second.operations) << row;
    EXPECT_EQ(row["timed_operations"], sum->second.timed) << row;
    EXPECT_EQ(row["bytes"], sum->second.bytes) << row;
    EXPECT_NEAR(row["busy_seconds"].get<double>(), sum->second.seconds, sum->second.seconds * 1e-6);
  }
}

TEST_F(ReportTest, HasTheSimulatorsNumbersAfterTheEndFromAnySource) {
  exporter::ChildProcess job(
      Simulation({"--layout", "3d", "--pace", "real", "--rate", "5", "--duration", "12"}),
      {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_IB_HCA", "=mlx5_0,mlx5_1"}});
  ASSERT_EQ(job.Wait(), 0);
  const std::map<Kind, Sums> expected = TrueSums(ReadTruth(Path("truth.json")));
  ASSERT_GT(expected.size(), 2u);
  exporter::SleepMilliseconds(3000);  // the last scrape
  const exporter::Finished found =
      Report({"--http.config.file=" + Path("http.yml"), "--job=4711", "--json"});
  ASSERT_EQ(found.exit_code, 0) << found.output;
  const json by_prometheus = json::parse(found.output);
  ExpectTraffic(by_prometheus, expected);
  EXPECT_EQ(by_prometheus["job"]["processes"], 4);
  EXPECT_EQ(by_prometheus["nodes"], 1);
  // Prometheus begins to scrape some seconds after its start.
  EXPECT_GT(by_prometheus["gpu_seconds"], 8);
  EXPECT_LT(by_prometheus["gpu_seconds"], 4 * 15);
  EXPECT_EQ(by_prometheus["warnings"], json::array());

  const exporter::Finished of_node =
      exporter::RunToEnd({kDaemonPath, "report", "--segments", "--daemon=none",
                          "--segment.dir=" + segments_.path(), "--job=4711", "--json"});
  ASSERT_EQ(of_node.exit_code, 0) << of_node.output;
  const json by_node = json::parse(of_node.output);
  ExpectTraffic(by_node, expected);
  for (const json* report : {&by_prometheus, &by_node}) {
    const auto is_hca = [](const json& fact) { return fact["name"] == "NCCL_IB_HCA"; };
    const auto fact = std::ranges::find_if((*report)["facts"], is_hca);
    ASSERT_NE(fact, (*report)["facts"].end());
    EXPECT_EQ((*fact)["value"], "=mlx5_0,mlx5_1");
    EXPECT_EQ((*fact)["processes"], 4);
  }
  EXPECT_NEAR(by_node["gpu_seconds"].get<double>(), 4 * 12, 12);
  // Both know the least time of a rank in each kind of collective.
  std::map<Kind, double> least;
  for (const json& row : by_node["traffic"])
    least[{row["comm_name"], row["collective"]}] = row["least_seconds"];
  for (const json& row : by_prometheus["traffic"])
    EXPECT_NEAR(row["least_seconds"].get<double>(), (least[{row["comm_name"], row["collective"]}]),
                1e-6);

  // A frozen report says the same.
  Write("frozen.json", of_node.output);
  EXPECT_EQ(exporter::RunToEnd({kDaemonPath, "report", Path("frozen.json"), "--json"}).output,
            of_node.output);
  const exporter::Finished page =
      exporter::RunToEnd({kDaemonPath, "report", Path("frozen.json"), "--html", Path("r.html")});
  EXPECT_EQ(page.exit_code, 0) << page.output;
  EXPECT_GT(std::filesystem::file_size(Path("r.html")), 10000u);
}

struct Hang {
  const char* name;
  const char* scrapes;        // parts that are scraped
  const char* kernel_timing;  // off: completions are not seen
};

class ReportHangTest : public testing::TestWithParam<Hang> {
 protected:
  ReportHangTest()
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
  json Shown(const std::vector<std::string>& options) const {
    std::vector<std::string> command{kDaemonPath, "report", "--json"};
    command.insert(command.end(), options.begin(), options.end());
    const exporter::Finished report = exporter::RunToEnd(command);
    return report.exit_code == 0 ? json::parse(report.output) : json();
  }
  std::string Prometheus() const {
    return "--prometheus=http://127.0.0.1:" + std::to_string(port_);
  }

  collector::ScratchDirectory segments_, scratch_;
  Daemon daemon_;
  const int port_;
  std::unique_ptr<exporter::ChildProcess> prometheus_;
};

// Global ranks that events of this name name.
std::vector<std::string> Named(const json& report, const std::string& name) {
  std::vector<std::string> ranks;
  for (const json& event : report["events"]) {
    if (event["name"] == name) ranks.push_back(event["labels"].value("global_rank", ""));
  }
  return ranks;
}

// All others wait for rank 5, in groups in which some of them are behind as well. The segments name
// it also when all processes were killed.
TEST_P(ReportHangTest, NamesTheRankThatDoesNotCallAndNoOther) {
  exporter::ChildProcess job(
      SimulatorCommand(segments_.path(), scratch_.path() + "/truth.json",
                       {"--layout", "3d", "--ranks-per-node", "8", "--pace", "real", "--rate", "5",
                        "--slurm-job-id", "4711", "--duration", "200", "--incident",
                        "missing-call:rank=5,from=8"}),
      {{"NCCL_EXPORTER_KERNEL_TIMING", GetParam().kernel_timing}});
  json shown;
  const auto is_named = [&] {
    exporter::SleepMilliseconds(500);
    shown = Shown({Prometheus(), "--job=4711", "--since=5m"});
    return !shown.is_null() && !Named(shown, "NCCLHangCulprit").empty() &&
           shown["waiting_gpu_seconds"] > 0;  // the rules record it more seldom
  };
  constexpr int kPatienceSeconds = 5;  // each of its looks takes half a second and more
  ASSERT_TRUE(exporter::Eventually(is_named, kPatienceSeconds))
      << shown << prometheus_->AllOutput();
  for (const std::string& rank : Named(shown, "NCCLHangCulprit")) EXPECT_EQ(rank, "5");
  EXPECT_GT(shown["events"][0]["times"][0][0], shown["from"]);
  const json jobs = Shown({Prometheus()});
  EXPECT_THAT(jobs["jobs"][0]["trouble"].get<std::string>(), HasSubstr("Hang"));

  job.Signal(SIGKILL);
  job.Wait();
  json of_node;
  // The processes end one after the other: until the last has, the dead are the cause.
  EXPECT_TRUE(exporter::Eventually([&] {
    of_node = Shown({"--segments", "--daemon=none", "--findings.time-scale=15",
                     "--segment.dir=" + segments_.path()});
    return !of_node.is_null() && Named(of_node, "hang_culprit") == std::vector<std::string>{"5"};
  })) << of_node;
}

INSTANTIATE_TEST_SUITE_P(Scrapes, ReportHangTest,
                         testing::Values(Hang{"AlertsAlone", "alerts", "on"},
                                         Hang{"CompletionsNotSeen", "alerts, detail", "off"}),
                         [](const auto& hang) { return std::string(hang.param.name); });

}  // namespace
}  // namespace nccl_exporter
