// SPDX-License-Identifier: Apache-2.0
// Real Prometheuses and promtool as judges: they scrape all three formats without a warning, and
// answer queries with the numbers of the simulator's ground truth, from native histograms too.
// Newer ones than Debian 12's come by tools/fetch-prometheus; without it their cases are skipped.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <regex>
#include <thread>

#include "exporter/testing/test_certificates.h"
#include "proto/buckets.h"
#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

constexpr char kPromtool[] = "/usr/bin/promtool";

struct Release {
  const char* name;
  const char* program;
  const char* keep_classic;  // setting of a scrape that keeps the classic part beside the native
                             // one; "": there is none
};
constexpr Release kRelease242{"V2_42", "/usr/bin/prometheus", ""};
constexpr Release kRelease253{"V2_53",
                              "/var/cache/nccl-exporter/prometheus/trixie/usr/bin/prometheus",
                              "scrape_classic_histograms: true"};
constexpr Release kRelease35{"V3_5", "/var/cache/nccl-exporter/prometheus/sid/usr/bin/prometheus",
                             "always_scrape_classic_histograms: true"};

class Prometheus : public testing::Test {
 protected:
  // Starts a Prometheus that scrapes this port of the loopback interface each second.
  void Start(const Release& release, int target_port, const std::vector<std::string>& flags = {}) {
    port_ = FreePort();
    std::ofstream(scratch_.path() + "/prometheus.yml")
        << "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: nccl\n  static_configs: "
           "[{targets: ['127.0.0.1:"
        << target_port << "']}]\n  " << (flags.empty() ? "" : release.keep_classic) << "\n"
        << more_settings_;
    std::vector<std::string> command{
        release.program, "--config.file=" + scratch_.path() + "/prometheus.yml",
        "--storage.tsdb.path=" + scratch_.path() + "/data",
        "--web.listen-address=127.0.0.1:" + std::to_string(port_), "--log.level=debug"};
    command.insert(command.end(), flags.begin(), flags.end());
    server_ = std::make_unique<exporter::ChildProcess>(std::move(command));
    ASSERT_TRUE(exporter::Eventually([&] {
      return exporter::HttpGet(Url("/-/ready")).status == 200;
    })) << server_->AllOutput();
  }
  std::string Url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

  // The single value of an instant query; nothing if the answer is empty.
  std::optional<double> Query(const std::string& expression) const {
    std::string escaped;
    char code[4];
    for (const unsigned char c : expression) {
      snprintf(code, sizeof(code), "%%%02X", c);
      escaped += code;
    }
    const nlohmann::json answer = nlohmann::json::parse(
        exporter::HttpGet(Url("/api/v1/query?query=" + escaped)).body, nullptr, false);
    if (answer.is_discarded() || answer.value("status", "") != "success") return std::nullopt;
    const auto& result = answer["data"]["result"];
    EXPECT_LE(result.size(), 1u) << expression;
    return result.empty() ? std::nullopt
                          : std::optional(std::stod(result[0]["value"][1].get<std::string>()));
  }

  collector::ScratchDirectory segments_, scratch_;
  std::string more_settings_;  // of the scrape, each a line
  int port_ = 0;
  std::unique_ptr<exporter::ChildProcess> server_;
};

struct Totals {
  double operations = 0, bytes = 0, timed = 0, busy_seconds = 0;
};
Totals TotalsOf(const nlohmann::json& truth) {
  Totals totals;
  for (const auto& rank : truth["ranks"]) {
    for (const auto& communicator : rank["communicators"]) {
      for (const auto& [function, expected] : communicator["functions"].items()) {
        if (function == "Send" || function == "Recv") continue;
        for (const auto& [size, counts] : expected["sizes"].items()) {
          totals.operations += counts["operations"].get<double>();
          totals.bytes += counts["bytes"].get<double>();
          totals.timed += counts["timed_operations"].get<double>();
          totals.busy_seconds += counts["busy_ns"].get<double>() / 1e9;
        }
      }
    }
  }
  return totals;
}

// Stands between Prometheus, which asks for OpenMetrics first, and the daemon, and asks for text.
class TextRelay {
 public:
  explicit TextRelay(const Daemon& daemon) : daemon_(daemon), port_(FreePort()) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(socket_, 4), 0);
    thread_ = std::thread([this] {
      for (int client; (client = accept(socket_, nullptr, nullptr)) >= 0; close(client))
        Serve(client);
    });
  }
  ~TextRelay() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  int port() const { return port_; }

 private:
  void Serve(int client) const {
    char request[4096];
    if (read(client, request, sizeof(request)) <= 0) return;
    const exporter::HttpAnswer answer =
        daemon_.Get("/metrics", {"Accept: text/plain;version=0.0.4"});
    EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    const std::string text = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " +
                             answer.headers.at("content-type") +
                             "\r\nContent-Length: " + std::to_string(answer.body.size()) +
                             "\r\n\r\n" + answer.body;
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = send(client, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }

  const Daemon& daemon_;
  int port_;
  int socket_ = -1;
  std::thread thread_;
};

// Durations of the timed collectives of all ranks, or their bus bandwidths, by the ground truth's
// native buckets.
class TrueDistribution {
 public:
  TrueDistribution(const nlohmann::json& truth, const std::string& key, size_t buckets)
      : counts_(buckets) {
    for (const auto& rank : truth["ranks"]) {
      for (const auto& communicator : rank["communicators"]) {
        for (const auto& [function, expected] : communicator["functions"].items()) {
          if (function == "Send" || function == "Recv") continue;
          for (const auto& [index, count] : expected[key].items())
            counts_[std::stoul(index)] += count.get<double>();
        }
      }
    }
  }

  double total() const { return std::accumulate(counts_.begin(), counts_.end(), 0.0); }

  // The bucket that holds this quantile.
  size_t IndexOf(double quantile) const {
    double below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      below += counts_[i];
      if (below >= quantile * total()) return i;
    }
    return counts_.size() - 1;
  }

 private:
  std::vector<double> counts_;
};

enum class ScrapedAs { kOpenMetrics, kText, kProtobuf };
struct Scraper {
  Release release;
  ScrapedAs as;
};

class PrometheusFormats : public Prometheus, public testing::WithParamInterface<Scraper> {
 protected:
  void SetUp() override {
    const char* program = GetParam().release.program;
    if (access(program, X_OK) != 0) GTEST_SKIP() << program << " is not there";
  }
  bool IsNative() const { return GetParam().as == ScrapedAs::kProtobuf; }

  // Count, sum and quantiles of a histogram over all its series.
  double Count(const std::string& name) const {
    return Query(IsNative() ? "histogram_count(sum(" + name + "))" : "sum(" + name + "_count)")
        .value_or(-1);
  }
  double Sum(const std::string& name) const {
    return Query(IsNative() ? "histogram_sum(sum(" + name + "))" : "sum(" + name + "_sum)")
        .value_or(-1);
  }
  double Quantile(double quantile, const std::string& name) const {
    const std::string buckets =
        IsNative() ? "sum(" + name + ")" : "sum by (le) (" + name + "_bucket)";
    return Query("histogram_quantile(" + std::to_string(quantile) + ", " + buckets + ")")
        .value_or(-1);
  }

  // Native: within the bucket that holds the true quantile, 9 % wide. Classic: between the bounds
  // around that bucket.
  template <typename Buckets, typename Bounds>
  void ExpectQuantiles(const std::string& name, const TrueDistribution& truth,
                       const Bounds& classic_bounds) const {
    constexpr double kRounding = 1e-6;
    for (const double quantile : {0.1, 0.5, 0.9, 0.99}) {
      // Native bucket.
      const int index = Buckets::kFirstBound + static_cast<int>(truth.IndexOf(quantile));
      double low = IsNative() ? std::exp2((index - 1) / 8.0) : 0;
      double high = IsNative() ? std::exp2(index / 8.0) : std::exp2(classic_bounds.back() / 8.0);
      for (const int bound : classic_bounds) {
        if (IsNative()) break;
        if (bound < index) low = std::exp2(bound / 8.0);
        if (bound >= index) high = std::min(high, std::exp2(bound / 8.0));
      }
      const double found = Quantile(quantile, name);
      EXPECT_GE(found, low * (1 - kRounding)) << name << ' ' << quantile;
      EXPECT_LE(found, high * (1 + kRounding)) << name << ' ' << quantile;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, PrometheusFormats,
                         testing::Values(Scraper{kRelease242, ScrapedAs::kOpenMetrics},
                                         Scraper{kRelease242, ScrapedAs::kText},
                                         Scraper{kRelease242, ScrapedAs::kProtobuf},
                                         Scraper{kRelease253, ScrapedAs::kOpenMetrics},
                                         Scraper{kRelease253, ScrapedAs::kProtobuf},
                                         Scraper{kRelease35, ScrapedAs::kOpenMetrics},
                                         Scraper{kRelease35, ScrapedAs::kText},
                                         Scraper{kRelease35, ScrapedAs::kProtobuf}),
                         [](const auto& test) {
                           const char* format = test.param.as == ScrapedAs::kProtobuf ? "Protobuf"
                                                : test.param.as == ScrapedAs::kText   ? "Text"
                                                                                    : "OpenMetrics";
                           return std::string(format) + "By" + test.param.release.name;
                         });

TEST_P(PrometheusFormats, AreScrapedWithoutAWarningAndAnswerWithTheTruth) {
  Daemon daemon(segments_.path());
  TextRelay relay(daemon);
  Start(GetParam().release, GetParam().as == ScrapedAs::kText ? relay.port() : daemon.port(),
        IsNative() ? std::vector<std::string>{"--enable-feature=native-histograms"}
                   : std::vector<std::string>{});
  const exporter::Finished job =
      exporter::RunToEnd(SimulatorCommand(segments_.path(), scratch_.path() + "/truth.json",
                                          {"--layout", "mixed", "--steps", "40", "--nodes", "2",
                                           "--ranks-per-node", "4", "--slurm-job-id", "4711"}),
                         {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
  ASSERT_EQ(job.exit_code, 0) << job.output;
  const nlohmann::json truth = ReadTruth(scratch_.path() + "/truth.json");
  const Totals totals = TotalsOf(truth);
  ASSERT_TRUE(exporter::Eventually([&] {
    return Query("sum(nccl_collective_operations_total)").value_or(0) == totals.operations;
  }));

  EXPECT_EQ(Query("sum(nccl_collective_bytes_total)").value_or(0), totals.bytes);
  EXPECT_EQ(Query("sum(nccl_collective_timed_operations_total)").value_or(0), totals.timed);
  EXPECT_NEAR(Query("sum(nccl_collective_busy_seconds_total)").value_or(0), totals.busy_seconds,
              totals.busy_seconds * 1e-9);
  EXPECT_EQ(Count("nccl_collective_duration_seconds"), totals.timed);
  EXPECT_NEAR(Sum("nccl_collective_duration_seconds"), totals.busy_seconds,
              totals.busy_seconds * 1e-9);
  const auto classic_count = Query("sum(nccl_collective_duration_seconds_bucket{le=\"+Inf\"})");
  const bool has_classic = !IsNative() || *GetParam().release.keep_classic != '\0';
  EXPECT_EQ(classic_count, has_classic ? std::optional(totals.timed) : std::nullopt);
  const TrueDistribution durations(truth, "duration", DurationBuckets::kCount);
  const TrueDistribution bandwidths(truth, "bandwidth", BandwidthBuckets::kCount);
  EXPECT_EQ(durations.total(), totals.timed);
  EXPECT_GT(bandwidths.total(), 0);
  EXPECT_EQ(Count("nccl_collective_bus_bandwidth_bytes_per_second"), bandwidths.total());
  ExpectQuantiles<DurationBuckets>("nccl_collective_duration_seconds", durations,
                                   kClassicDurationBounds);
  ExpectQuantiles<BandwidthBuckets>("nccl_collective_bus_bandwidth_bytes_per_second", bandwidths,
                                    kClassicBandwidthBounds);
  EXPECT_EQ(Query("sum(nccl_collective_started_sequence)").value_or(0), totals.operations);
  EXPECT_EQ(Query("count(count by (nccl_job) (nccl_rank_info{nccl_job=\"4711\"}))").value_or(0), 1);
  EXPECT_EQ(Query("up").value_or(0), 1);
  EXPECT_EQ(Query("count({job=~\".+\", exported_job=~\".+\"})").value_or(0), 0)
      << "a label collides with the scraper's own";

  const std::string log = server_->AllOutput();
  for (const char* trouble : {"level=warn", "level=error", "level=WARN", "level=ERROR",
                              "scrape failed", "Append failed", "out of order", "duplicate"}) {
    for (size_t at = 0; (at = log.find(trouble, at)) != std::string::npos; ++at) {
      const size_t begin = log.rfind('\n', at) + 1;
      ADD_FAILURE() << log.substr(begin, log.find('\n', at) - begin);
    }
  }
}

// Network operations of all ranks that the plugin timed, by the ground truth.
struct NetworkTotals {
  double operations = 0, bytes = 0;
  std::map<std::string, double> state_ns;  // as they are exported
};
NetworkTotals NetworkTotalsOf(const nlohmann::json& truth, const std::string& direction) {
  NetworkTotals totals;
  for (const auto& rank : truth["ranks"]) {
    for (const auto& communicator : rank["communicators"]) {
      const auto& counts = communicator["network"][direction]["reported"];
      totals.operations += counts["operations"].get<double>();
      totals.bytes += counts["bytes"].get<double>();
      for (const auto& [state, ns] : counts["state_ns"].items()) {
        const bool is_own = direction == "recv" && state == "peer";
        totals.state_ns[is_own ? "gpu" : state] += ns.get<double>();
      }
    }
  }
  return totals;
}

TEST_F(Prometheus, AnswersWhereNetworkTimeGoesWithTheTruth) {
  Daemon daemon(segments_.path());
  Start(kRelease242, daemon.port());
  const exporter::Finished job =
      exporter::RunToEnd(SimulatorCommand(segments_.path(), scratch_.path() + "/truth.json",
                                          {"--layout",
                                           "dp",
                                           "--nodes",
                                           "3",
                                           "--ranks-per-node",
                                           "1",
                                           "--pace",
                                           "real",
                                           "--rate",
                                           "5",
                                           "--steps",
                                           "20",
                                           "--channels",
                                           "2",
                                           "--network-chunk",
                                           "4194304",
                                           "--network-poll",
                                           "20000",
                                           "--network-repeats",
                                           "4",
                                           "--incident",
                                           "slow-link:node=0,to=1,times=4"}),
                         {{"NCCL_EXPORTER_NETWORK_TIMING", "always"}});
  ASSERT_EQ(job.exit_code, 0) << job.output;
  const nlohmann::json truth = ReadTruth(scratch_.path() + "/truth.json");
  for (const std::string direction : {"send", "recv"}) {
    const NetworkTotals totals = NetworkTotalsOf(truth, direction);
    ASSERT_GT(totals.operations, 0);
    const std::string of = "{direction=\"" + direction + "\"";
    ASSERT_TRUE(exporter::Eventually([&] {
      return Query("sum(nccl_network_timed_operations_total" + of + "})") == totals.operations;
    })) << direction;
    EXPECT_EQ(Query("sum(nccl_network_timed_bytes_total" + of + "})"), totals.bytes) << direction;
    // Events reach the progress thread as late as its next poll.
    constexpr double kPollSeconds = 20e-6;
    for (const auto& [state, ns] : totals.state_ns) {
      if (state == (direction == "send" ? "flush" : "peer")) continue;
      EXPECT_NEAR(Query("sum(nccl_network_wait_seconds_total" + of + ",state=\"" + state + "\"})")
                      .value_or(-1),
                  ns / 1e9, kPollSeconds * totals.operations)
          << direction << ' ' << state;
    }
  }
  const auto seconds_per_byte = [&](const std::string& rank) {
    const std::string of_rank = "{direction=\"send\",rank=\"" + rank + "\"";
    return Query("nccl_network_wait_seconds_total" + of_rank +
                 ",state=\"network\"} / ignoring (state) nccl_network_timed_bytes_total" + of_rank +
                 "}")
        .value_or(-1);
  };
  EXPECT_GT(seconds_per_byte("0"), 2 * seconds_per_byte("1")) << "the slow way begins at node 0";
}

// The query of docs/network-time.md.
std::string DocumentedScaling() {
  std::ifstream file("docs/network-time.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string begin = "```promql\n";
  const size_t at = text.find(begin, text.find("## All bytes")) + begin.size();
  return text.substr(at, text.find("```", at) - at);
}

// The query about all that was counted, in place of rates.
std::string WithoutRates(const std::string& query) {
  static const std::regex kRate(R"(rate\((\w+)\[5m\]\))");
  return std::regex_replace(query, kRate, "$1");
}

// Windows of 50 ms in half a second; ladder has every kind of operation on one communicator, of a
// few bytes to 192 MiB.
TEST_F(Prometheus, ScalesTimedBytesToAllBytesByTheDocumentedQuery) {
  const std::string documented = DocumentedScaling(), scaled = WithoutRates(documented);
  ASSERT_EQ(scaled.find("5m"), std::string::npos) << scaled;
  Daemon daemon(segments_.path());
  Start(kRelease242, daemon.port());
  // The daemon counts what it sees begin.
  ASSERT_TRUE(exporter::Eventually([&] { return Query("up") == 1; }));
  for (const std::string layout : {"ladder", "3d"}) {
    const std::string truth_file = scratch_.path() + "/" + layout + ".json";
    const exporter::Finished job = exporter::RunToEnd(
        SimulatorCommand(segments_.path(), truth_file,
                         {"--layout", layout, "--nodes", "2", "--ranks-per-node", "1", "--pace",
                          "real", "--rate", "5", "--steps", "60", "--network-chunk", "4194304",
                          "--network-poll", "20000", "--network-repeats", "4"}),
        {{"NCCL_EXPORTER_NETWORK_TIMING", "0.1/0.5"}});
    ASSERT_EQ(job.exit_code, 0) << job.output;
    const nlohmann::json truth = ReadTruth(truth_file);
    int compared = 0;
    for (const auto& rank : truth["ranks"]) {
      for (const auto& communicator : rank["communicators"]) {
        for (const std::string direction : {"send", "recv"}) {
          if (!communicator.contains("network")) continue;
          const auto& counts = communicator["network"][direction];
          if (counts["all"]["operations"] == 0) continue;
          const auto& reported = counts["reported"];
          const std::string of = "{comm=\"" + communicator["id"].get<std::string>() + "\",rank=\"" +
                                 std::to_string(communicator["rank"].get<int>()) +
                                 "\",direction=\"" + direction + "\"}";
          SCOPED_TRACE(layout + of);
          ASSERT_LT(reported["bytes"].get<double>(), 0.5 * counts["all"]["bytes"].get<double>());
          ASSERT_TRUE(exporter::Eventually([&] {
            return Query("nccl_network_timed_operations_total" + of) ==
                   reported["operations"].get<double>();
          }));
          const std::string own =
              "and on (comm, rank, direction) nccl_network_timed_operations_total" + of;
          const double bytes = counts["all"]["bytes"].get<double>();
          // The last operations are not timed, and may be scraped later than the others.
          double share = 0;
          EXPECT_TRUE(exporter::Eventually([&] {
            share = Query("(" + scaled + ")" + own).value_or(0) / bytes;
            return std::abs(share - 1) <= 0.05;
          })) << share;
          ++compared;
        }
      }
    }
    EXPECT_GE(compared, 4);
  }
  // All communicators are idle by now. They have no result: 0 / 0 would be NaN, and each sum with
  // it.
  const std::string of_seconds = std::regex_replace(documented, std::regex("5m"), "5s");
  EXPECT_TRUE(exporter::Eventually([&] {
    return Query("count(rate(nccl_network_timed_bytes_total[5s]) == 0) unless on () count(" +
                 of_seconds + ")")
               .value_or(0) > 0;
  }));
}

TEST_F(Prometheus, ScrapesByTlsWithACertificateAndAPassword) {
  const exporter::TestAuthority authority;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(scratch_.path() + '/' + name) << text;
  };
  write("ca.pem", authority.certificate());
  const exporter::TestAuthority::Issued server = authority.Issue({"IP:127.0.0.1"});
  write("server.pem", server.certificate);
  write("server.key", server.key);
  const exporter::TestAuthority::Issued client = authority.Issue({"DNS:prometheus"});
  write("client.pem", client.certificate);
  write("client.key", client.key);
  write(
      "web.yml",
      "tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem,\n"
      "  client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [prometheus], "
      "min_version: TLS13}\n"
      "basic_auth_users: {alice: $2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}\n");
  more_settings_ =
      "  scheme: https\n"
      "  basic_auth: {username: alice, password: secret}\n"
      "  tls_config: {ca_file: ca.pem, cert_file: client.pem, key_file: client.key}\n";
  const int target = FreePort();
  const exporter::ChildProcess daemon(
      {kDaemonPath, "--web.listen-address=127.0.0.1:" + std::to_string(target),
       "--web.config.file=" + scratch_.path() + "/web.yml", "--segment.dir=" + segments_.path()});
  Start(kRelease242, target);
  EXPECT_TRUE(exporter::Eventually([&] { return Query("nccl_exporter_build_info") == 1.0; }))
      << server_->AllOutput();
  EXPECT_EQ(Query("up"), 1.0);
}

TEST_F(Prometheus, PromtoolFindsNothingInEitherTextFormat) {
  Daemon daemon(segments_.path());
  exporter::RunToEnd(
      SimulatorCommand(segments_.path(), scratch_.path() + "/truth.json",
                       {"--layout", "mixed", "--steps", "10", "--ranks-per-node", "4"}));
  const auto check = [&](const std::string& body, const char* what) {
    const std::string file = scratch_.path() + "/scrape.txt";
    std::ofstream(file) << body;
    const exporter::Finished promtool =
        exporter::RunToEnd({"/bin/sh", "-c", std::string(kPromtool) + " check metrics < " + file});
    EXPECT_EQ(promtool.exit_code, 0) << what << ": " << promtool.output;
    EXPECT_EQ(promtool.output, "") << what;
  };
  const exporter::HttpAnswer text = daemon.Get("/metrics", {"Accept: text/plain;version=0.0.4"});
  EXPECT_EQ(text.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  check(text.body, "text 0.0.4");
  const exporter::HttpAnswer open_metrics =
      daemon.Get("/metrics", {"Accept: application/openmetrics-text;version=1.0.0"});
  EXPECT_EQ(open_metrics.headers.at("content-type"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_TRUE(open_metrics.body.ends_with("# EOF\n"));
}

}  // namespace
}  // namespace nccl_exporter
