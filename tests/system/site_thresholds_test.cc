// SPDX-License-Identifier: Apache-2.0
// A site's threshold moves everything that speaks of a hang: alert, API, page, `top`, `inflight`
// and metric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>

#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

// All durations are divided by it: the threshold of ten minutes is 20 s, the shipped one 4 s.
constexpr char kTimeScale[] = "30";
constexpr double kHangBeginsAt = 6;  // seconds after the start of the job
constexpr double kEarliest = 18, kLatest = 40;
// A rank is shown to wait after a quarter.
constexpr double kWaitEarliest = 4, kWaitLatest = 16;

class SiteThresholdsTest : public testing::Test {
 protected:
  void Start() {
    const exporter::Finished rules = exporter::RunToEnd(
        {"/usr/bin/python3", "deploy/prometheus/generate-rules", "--time-scale", kTimeScale,
         "--hang-threshold", "10m", "--output", scratch_.path()});
    ASSERT_EQ(rules.exit_code, 0) << rules.output;
    daemon_.emplace(segments_.path(),
                    std::vector<std::string>{
                        "--segment.retention=60s", std::string("--findings.time-scale=") + kTimeScale,
                        "--findings.config=" + scratch_.path() + "/thresholds.json"});
    std::ofstream(scratch_.path() + "/prometheus.yml")
        << "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: ['"
        << scratch_.path() << "/nccl-exporter.rules.yml']\nscrape_configs:\n- job_name: nccl\n"
        << "  scrape_timeout: 500ms\n  params: {'collect[]': [alerts]}\n"
        << "  static_configs: [{targets: ['127.0.0.1:" << daemon_->port() << "']}]\n";
    prometheus_ = std::make_unique<exporter::ChildProcess>(std::vector<std::string>{
        "/usr/bin/prometheus", "--config.file=" + scratch_.path() + "/prometheus.yml",
        "--storage.tsdb.path=" + scratch_.path() + "/data", "--query.lookback-delta=10s",
        "--web.listen-address=127.0.0.1:" + std::to_string(port_)});
    job_.emplace(
        SimulatorCommand(segments_.path(), scratch_.path() + "/truth.json",
                         {"--layout", "dp", "--ranks-per-node", "4", "--pace", "real", "--rate", "5",
                          "--duration", "200", "--incident", "missing-call:rank=1,from=6"}));
    started_ = std::chrono::steady_clock::now();
  }

  double SecondsOfHang() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count() -
           kHangBeginsAt;
  }

  bool Prints(const char* command) const {
    return Says(exporter::RunToEnd({kDaemonPath, command, "--segment.dir=" + segments_.path(),
                                    "--daemon=" + daemon_->Url("")})
                    .output);
  }
  static bool Says(const std::string& text) { return text.find(" hangs since ") != std::string::npos; }
  bool Alerts() const {
    const exporter::HttpAnswer answer =
        exporter::HttpGet("http://127.0.0.1:" + std::to_string(port_) + "/api/v1/alerts", {});
    return answer.body.find("NCCLCollectiveHang") != std::string::npos;
  }
  bool Counts() const {
    return testing::Matches(testing::ContainsRegex(
        "nccl_exporter_findings\\{[^}]*hang_culprit[^}]*\\} [1-9]"))(daemon_->Get("/metrics").body);
  }

  collector::ScratchDirectory segments_, scratch_;
  std::optional<Daemon> daemon_;
  const int port_ = FreePort();
  std::unique_ptr<exporter::ChildProcess> prometheus_;
  std::optional<exporter::ChildProcess> job_;
  std::chrono::steady_clock::time_point started_;
};

TEST_F(SiteThresholdsTest, MoveAlertPageCommandsAndMetric) {
  ASSERT_NO_FATAL_FAILURE(Start());
  struct View {
    std::function<bool()> shows_the_hang;
    double earliest = kEarliest, latest = kLatest;
  };
  std::map<std::string, View> views{
      {"alert", {[this] { return Alerts(); }}},
      {"API", {[this] { return Says(daemon_->Get("/api/v1/findings").body); }}},
      {"page", {[this] { return Says(daemon_->Get("/api/v1/node").body); }}},
      {"top", {[this] { return Prints("top"); }}},
      {"inflight", {[this] { return Prints("inflight"); }}},
      {"metric", {[this] { return Counts(); }, kWaitEarliest, kWaitLatest}}};
  while (!views.empty() && SecondsOfHang() < kLatest) {
    std::erase_if(views, [&](const auto& entry) {
      const double before = SecondsOfHang();  // the look takes time itself
      if (!entry.second.shows_the_hang()) return false;
      EXPECT_GE(SecondsOfHang(), entry.second.earliest) << entry.first;
      EXPECT_LE(before, entry.second.latest) << entry.first;
      return true;
    });
    exporter::SleepMilliseconds(200);
  }
  for (const auto& [name, view] : views) ADD_FAILURE() << name << " does not show the hang";
}

}  // namespace
}  // namespace nccl_exporter
