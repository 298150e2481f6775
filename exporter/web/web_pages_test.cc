// SPDX-License-Identifier: Apache-2.0
// The pages over loopback, as Prometheus, a kubelet and a person with a browser meet them.
#include "exporter/web/web_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <latch>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "exporter/testing/decoded_families.h"
#include "exporter/testing/example_snapshot.h"
#include "exporter/testing/gunzip.h"
#include "exporter/testing/http_client.h"
#include "exporter/testing/promtool.h"
#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {
namespace {

class WebPagesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(server_.Start({"127.0.0.1:0"}), ""); }
  int port() const { return server_.ports().at(0); }

  BookSource::TakeBook take_ = ExampleBook;
  BookSource books_{[this] { return take_(); }};
  BookSource books_of_history_{ExampleBook};
  AnswerBudget budget_;
  ScrapePage scrape_page_{books_, budget_};
  NodeWatch history_{books_of_history_};
  WebPages pages_{books_,
                  scrape_page_,
                  history_,
                  budget_,
                  {.node_name = "gpu-node-7", .telemetry_path = "/metrics"}};
  HttpServer server_{[this](const HttpRequest& request) { return pages_.Answer(request); }};
};

TEST_F(WebPagesTest, ServesTextByDefault) {
  const HttpAnswer answer = Get(port(), "/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(answer.headers.at("vary"), "Accept, Accept-Encoding");
  EXPECT_EQ(answer.headers.count("content-encoding"), 0u);
  EXPECT_THAT(answer.body, testing::StartsWith("# HELP nccl_api_calls_total "));
}

TEST_F(WebPagesTest, ShowsWhatIsInFlight) {
  const HttpAnswer answer = Get(port(), "/debug/inflight");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.headers.at("content-type"), testing::StartsWith("text/plain"));
  EXPECT_THAT(answer.body, testing::HasSubstr("AllReduce #3"));
  // The findings are between the first line and the tables.
  EXPECT_THAT(answer.body, testing::ContainsRegex(" in flight\n[A-Z]"));
}

// Regression: each request for the table had a snapshot and a judgement of its own.
TEST_F(WebPagesTest, RequestsForTheTableShareOneAnswer) {
  int taken = 0;
  take_ = [&] {
    ++taken;
    return ExampleBook();
  };
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Get(port(), "/debug/inflight").status, 200);
  const auto lasted = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(taken, 1 + lasted / kApiLifetime);
}

TEST_F(WebPagesTest, ServesOpenMetricsWhereItIsPreferred) {
  const HttpAnswer answer =
      Get(port(), "/metrics",
          {"Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"});
  EXPECT_EQ(answer.headers.at("content-type"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_THAT(answer.body, testing::EndsWith("\n# EOF\n"));
}

TEST_F(WebPagesTest, CompressesWhereThatIsAccepted) {
  const HttpAnswer answer = Get(port(), "/metrics", {"Accept-Encoding: gzip"});
  EXPECT_EQ(answer.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(answer.headers.at("vary"), "Accept, Accept-Encoding");
  const std::string text = Gunzip(answer.body);
  EXPECT_THAT(text, testing::StartsWith("# HELP nccl_api_calls_total "));
  EXPECT_THAT(text, testing::HasSubstr("\nprocess_threads "));
  EXPECT_LT(answer.body.size(), text.size() / 4);
}

TEST_F(WebPagesTest, TheWholeScrapePleasesPromtool) {
  Get(port(), "/metrics");
  EXPECT_EQ(PromtoolComplaints(Get(port(), "/metrics").body), "");
}

TEST_F(WebPagesTest, TheScrapeHoldsEveryFamilyOnceAndTheDaemonsOwn) {
  scrape_page_.daemon().SetUnmeasuredProcesses(0);
  scrape_page_.daemon().SetExtensionFaults(0);
  Get(port(), "/metrics");
  const std::string text = Get(port(), "/metrics").body;
  for (const MetricRow& row : kMetrics) {
    const std::string line = "# TYPE " + std::string(row.name) + ' ';
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << row.name;
    EXPECT_EQ(text.find(line, at + 1), std::string::npos) << row.name;
  }
  EXPECT_THAT(text, testing::HasSubstr("\nnccl_exporter_scrape_duration_seconds_count 1\n"));
  EXPECT_THAT(text,
              testing::HasSubstr(
                  "\nnccl_exporter_series_dropped_total{reason=\"folded\",uid=\"other\"} 0\n"));
  EXPECT_THAT(text,
              testing::HasSubstr(
                  "\nnccl_exporter_series_dropped_total{reason=\"left_out\",uid=\"other\"} 0\n"));
  EXPECT_THAT(text, testing::HasSubstr("\nnccl_exporter_build_info{"));
  for (const CodeRow<Refusal>& row : kRefusals) {
    EXPECT_THAT(text, testing::HasSubstr("\nnccl_exporter_requests_refused_total{reason=\"" +
                                         std::string(row.name) + "\"} 0\n"));
  }
}

// Names of the families in a text.
std::set<std::string> FamiliesOf(const std::string& text) {
  std::set<std::string> families;
  const std::string before_name = "# TYPE ";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(before_name)) continue;
    const size_t end = line.find(' ', before_name.size());
    families.insert(line.substr(before_name.size(), end - before_name.size()));
  }
  return families;
}

TEST_F(WebPagesTest, CollectsOnePartOfTheMetrics) {
  scrape_page_.daemon().SetUnmeasuredProcesses(0);
  scrape_page_.daemon().SetExtensionFaults(0);
  std::set<std::string> alerts, detail, both;
  for (const MetricRow& row : kMetrics) {
    const std::string name(row.name);
    (row.part == MetricPart::kAlerts ? alerts : detail).insert(name);
    both.insert(name);
  }
  EXPECT_EQ(FamiliesOf(Get(port(), "/metrics?collect[]=alerts").body), alerts);
  EXPECT_EQ(FamiliesOf(Get(port(), "/metrics?collect%5B%5D=alerts").body), alerts);
  EXPECT_EQ(FamiliesOf(Get(port(), "/metrics?collect%5b%5d=detail").body), detail);
  EXPECT_EQ(FamiliesOf(Get(port(), "/metrics?collect[]=detail&collect[]=alerts").body), both);
  EXPECT_EQ(FamiliesOf(Get(port(), "/metrics?other=x").body), both);
  const std::vector<std::string> openmetrics{"Accept: application/openmetrics-text;version=1.0.0"};
  EXPECT_THAT(Get(port(), "/metrics?collect[]=alerts", openmetrics).body,
              testing::AllOf(testing::HasSubstr("nccl_rank_info{"), testing::EndsWith("# EOF\n"),
                             testing::Not(testing::HasSubstr("nccl_collective_bytes"))));
}

TEST_F(WebPagesTest, AnUnknownPartIsAnErrorThatNamesTheKnownOnes) {
  for (const char* query : {"collect[]=alert", "collect[]=", "collect[]=alerts&collect[]=x"}) {
    const HttpAnswer answer = Get(port(), std::string("/metrics?") + query);
    EXPECT_EQ(answer.status, 400) << query;
    EXPECT_EQ(answer.body, "Unknown value of collect[]; known values: alerts, detail\n");
  }
}

TEST_F(WebPagesTest, HeadTellsWhatGetWouldSend) {
  const HttpAnswer head = Request(port(), "HEAD", "/metrics");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_GT(std::stoul(head.headers.at("content-length")), 1000u);
}

TEST_F(WebPagesTest, KnowsNoOtherPaths) {
  for (const char* path : {"/metric", "/metrics/", "/metrics/x", "/-/", "/favicon.ico",
                           "/../etc/passwd", "/%2e%2e/etc"}) {
    EXPECT_EQ(Get(port(), path).status, 404) << path;
  }
}

TEST_F(WebPagesTest, AnswersProbesWithHealthAndReadinessOnly) {
  const auto status = [&](std::string_view path) {
    return pages_.AnswerHealth({.path = std::string(path), .accept = {}, .accept_encoding = {}})
        .status;
  };
  EXPECT_EQ(status(kHealthyPath), 200);
  EXPECT_EQ(status(kReadyPath), 503);
  books_.Take();
  EXPECT_EQ(status(kReadyPath), 200);
  EXPECT_EQ(status("/metrics"), 404);
  for (const std::string_view path : kWebPaths) {
    const bool is_probed = path == kHealthyPath || path == kReadyPath;
    EXPECT_EQ(status(path), is_probed ? 200 : 404) << path;
  }
}

TEST_F(WebPagesTest, IsHealthyAtOnceAndReadyAfterTheFirstSnapshot) {
  EXPECT_EQ(Get(port(), "/-/healthy").status, 200);
  EXPECT_EQ(Get(port(), "/-/ready").status, 503);
  books_.Take();
  EXPECT_EQ(Get(port(), "/-/ready").status, 200);
}

TEST_F(WebPagesTest, TheLandingPageLinksToTheMetrics) {
  const HttpAnswer answer = Get(port(), "/");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(answer.body, testing::HasSubstr("<a href=\"metrics\">"));
}

TEST_F(WebPagesTest, ThePartsOfThePageCarryAStrictPolicyAndHoldNothingFromElsewhere) {
  for (const auto& [file, text] : kPageFiles) {
    const std::string path = file == "index.html" ? "/" : '/' + std::string(file);
    EXPECT_TRUE(IsWebPath(path)) << "it can be no path of the metrics";
    const HttpAnswer answer = Get(port(), path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_THAT(answer.headers.at("content-security-policy"),
                testing::AllOf(testing::HasSubstr("default-src 'none'"),
                               testing::HasSubstr("script-src 'self'"),
                               testing::Not(testing::HasSubstr("unsafe"))));
    for (const char* elsewhere : {"https:", "\"//", "url(", "style=", "onclick", "{{"}) {
      EXPECT_THAT(answer.body, testing::Not(testing::HasSubstr(elsewhere))) << path;
    }
    const HttpAnswer compressed = Get(port(), path, {"Accept-Encoding: gzip"});
    EXPECT_EQ(Gunzip(compressed.body), answer.body) << path;
    EXPECT_NE(compressed.headers.at("etag"), answer.headers.at("etag")) << "two forms, two tags";
  }
}

// The page and alerts (generate-rules --runbooks) link to them.
TEST_F(WebPagesTest, ServesTheRunbooksByNameAndByFile) {
  const HttpAnswer answer = Get(port(), "/docs/runbooks/NCCLHangCulprit");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_THAT(answer.body, testing::StartsWith("# NCCLHangCulprit\n"));
  EXPECT_EQ(Get(port(), "/docs/runbooks/NCCLHangCulprit.md").body, answer.body);
  for (const char* const name : {"", ".md", "NCCLHang", "../api.md", "NCCLHangCulprit.md.md"})
    EXPECT_EQ(Get(port(), std::string("/docs/runbooks/") + name).status, 404) << name;
  EXPECT_TRUE(IsWebPath("/docs/runbooks/NCCLHangCulprit")) << "it can be no path of the metrics";
}

TEST_F(WebPagesTest, TracesAreNotServedUnlessAskedFor) {
  EXPECT_EQ(Get(port(), "/debug/trace").status, 404);
  TracePage trace(
      [](std::chrono::nanoseconds) {
        return collector::NodeTrace{.node = "here", .processes = {}};
      },
      budget_);
  WebPages pages(books_, scrape_page_, history_, budget_,
                 {.node_name = "here", .telemetry_path = "/metrics"}, &trace);
  const HttpResponse answer =
      pages.Answer({.path = std::string(kTracePath), .accept = {}, .accept_encoding = {}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(std::string(answer.bytes()), testing::HasSubstr("\"node\":\"here\""));
}

TEST_F(WebPagesTest, SendsNoPartThatTheClientHas) {
  const std::string etag = Get(port(), "/page.js").headers.at("etag");
  const HttpAnswer same = Get(port(), "/page.js", {"If-None-Match: W/\"other\", " + etag});
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_EQ(same.headers.at("etag"), etag);
  EXPECT_EQ(Get(port(), "/page.js", {"If-None-Match: \"other\""}).status, 200);
}

TEST_F(WebPagesTest, TheNodeApiAnswersInJsonThatIsNotKept) {
  const HttpAnswer answer = Get(port(), "/api/v1/node");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(answer.headers.at("cache-control"), "no-store");
  EXPECT_THAT(answer.body, testing::HasSubstr("\"node\":\"gpu-node-7\""));
  EXPECT_EQ(Gunzip(Get(port(), "/api/v1/node", {"Accept-Encoding: gzip"}).body).substr(0, 20),
            answer.body.substr(0, 20));
}

TEST_F(WebPagesTest, ServesProtobufWhereItIsPreferred) {
  const std::vector<std::string> headers{
      "Accept: "
      "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
      "application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1",
      "Accept-Encoding: gzip"};
  const HttpAnswer answer = Get(port(), "/metrics", headers);
  EXPECT_EQ(answer.headers.at("content-type"),
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
            "encoding=delimited");
  EXPECT_EQ(answer.headers.at("content-encoding"), "gzip");
  bool has_native_histogram = false;
  for (const decoded::MetricFamily& family : DecodedFamilies(Gunzip(answer.body))) {
    for (const decoded::Metric& metric : family.metric()) {
      EXPECT_EQ(metric.has_counter(), metric.counter().has_created_timestamp()) << family.name();
      EXPECT_EQ(metric.has_histogram(), metric.histogram().has_created_timestamp())
          << family.name();
      has_native_histogram |= metric.histogram().has_schema();
    }
  }
  EXPECT_TRUE(has_native_histogram);
}

TEST_F(WebPagesTest, AStuckSnapshotDelaysAScrapeNoLongerThanItsTimeout) {
  std::latch may_end(1);
  take_ = [&] {
    may_end.wait();
    return ExampleBook();
  };
  const HttpAnswer answer = Get(port(), "/metrics", {"X-Prometheus-Scrape-Timeout-Seconds: 0.2"});
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "Not done within the scrape timeout\n");
  EXPECT_EQ(Get(port(), "/-/healthy").status, 200);
  may_end.count_down();
  EXPECT_THAT(
      Get(port(), "/metrics").body,
      testing::HasSubstr("\nnccl_exporter_requests_refused_total{reason=\"scrape_timeout\"} 1\n"));
}

TEST(ScrapePageTest, RefusesOnlyTheScrapesOfAnAddressThatAreTooMany) {
  BookSource books(ExampleBook);
  AnswerBudget budget;
  ScrapePage page(books, budget);
  std::vector<HttpResponse> not_taken_yet;
  for (int i = 0; i < kScrapesPerAddress; ++i) not_taken_yet.push_back(page.Answer({}));
  const HttpResponse refused = page.Answer({});
  HttpRequest of_another;
  of_another.client = "10.0.0.2";
  EXPECT_EQ(page.Answer(of_another).status, 200);
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.headers, testing::Contains(testing::Pair("Retry-After", "1")));
  not_taken_yet.pop_back();
  const HttpResponse answer = page.Answer({});
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(std::string(answer.bytes()),
              testing::HasSubstr(
                  "\nnccl_exporter_requests_refused_total{reason=\"scrapes_per_address\"} 1\n"));
}

// Pages of one scrape after the other, whose clients take nothing, are kept until then.
TEST(ScrapePageTest, RefusesAScrapeForWhosePageThereIsNoRoom) {
  BookSource books(ExampleBook);
  constexpr size_t kThreePages = size_t{400} << 10;
  AnswerBudget budget(kThreePages);
  ScrapePage page(books, budget);
  std::vector<HttpResponse> not_taken_yet;
  while (not_taken_yet.empty() || not_taken_yet.back().status == 200) {
    HttpRequest request;
    request.client = std::to_string(not_taken_yet.size());
    not_taken_yet.push_back(page.Answer(request));
    ASSERT_LT(not_taken_yet.size(), 100u);
  }
  EXPECT_EQ(not_taken_yet.back().status, 503);
  EXPECT_LE(budget.held(), kThreePages);
  not_taken_yet.clear();
  EXPECT_EQ(budget.held(), 0u);
  EXPECT_THAT(
      std::string(page.Answer({}).bytes()),
      testing::HasSubstr("\nnccl_exporter_requests_refused_total{reason=\"answer_bytes\"} 1\n"));
}

// Regression: an answer that was taken long ago counted, and the next one was refused without any
// slow client.
TEST_F(WebPagesTest, AnswersThatNobodyTakesAnyMoreGiveWay) {
  const HttpRequest node{.path = "/api/v1/node", .accept = "", .accept_encoding = ""};
  EXPECT_EQ(pages_.Answer(node).status, 200);
  const size_t bytes = budget_.held();
  AnswerBudget tight(bytes + bytes / 2);
  WebPages pages(books_, scrape_page_, history_, tight,
                 {.node_name = "gpu-node-7", .telemetry_path = "/metrics"});
  tight.SetGiveWay([&] { return pages.GiveWay(); });
  EXPECT_EQ(pages.Answer(node).status, 200);
  EXPECT_EQ(tight.Keep(std::string(bytes, ' ')), nullptr) << "it serves further requests";
  std::this_thread::sleep_for(kApiLifetime);
  EXPECT_EQ(pages.Answer(node).status, 200);
  std::this_thread::sleep_for(kApiLifetime);
  EXPECT_NE(tight.Keep(std::string(bytes, ' ')), nullptr) << "an answer of another kind";
}

TEST_F(WebPagesTest, IsNotReadyWhileTheDaemonSaysWhy) {
  std::string fault = "The log is blocked";
  WebPages pages(
      books_, scrape_page_, history_, budget_,
      {.node_name = "here", .telemetry_path = "/metrics", .fault = [&] { return fault; }});
  books_.Take();
  const HttpRequest ready{.path = "/-/ready", .accept = "", .accept_encoding = ""};
  const HttpResponse answer = pages.AnswerHealth(ready);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "The log is blocked\n");
  fault.clear();
  EXPECT_EQ(pages.AnswerHealth(ready).status, 200);
}

TEST_F(WebPagesTest, ConcurrentScrapesGetTheSameSeries) {
  std::vector<std::future<HttpAnswer>> scrapes;
  for (int i = 0; i < kScrapesPerAddress - 1; ++i) {
    scrapes.push_back(std::async(std::launch::async, [this] { return Get(port(), "/metrics"); }));
  }
  for (std::future<HttpAnswer>& scrape : scrapes) {
    const std::string body = scrape.get().body;
    EXPECT_EQ(body.substr(0, body.find("# HELP nccl_exporter_")),
              Get(port(), "/metrics").body.substr(0, body.find("# HELP nccl_exporter_")));
  }
}

TEST(ScrapePageTest, CountsSeriesBeyondTheCap) {
  BookSource books([] {
    return AssumedBook(NodeOfShape({.communicators = 2, .point_to_point = 0, .collectives = 1}));
  });
  AnswerBudget budget;
  ScrapePage page(books, budget, 1800);
  page.Answer({});
  const std::string text(page.Answer({}).bytes());
  const std::string before_count =
      "\nnccl_exporter_series_dropped_total{reason=\"detail\",uid=\"1000\"} ";
  const size_t at = text.find(before_count);
  ASSERT_NE(at, std::string::npos);
  const int count = std::stoi(text.substr(at + before_count.size()));
  EXPECT_GT(count, 0);
  EXPECT_EQ(count % 2, 0) << "two scrapes dropped the same number each";
}

TEST(LandingPageTest, LinksToTheTelemetryPath) {
  const HttpResponse answer =
      PageAssets("/a/b").Answer({.path = "/", .accept = "", .accept_encoding = ""});
  EXPECT_THAT(std::string(answer.bytes()), testing::HasSubstr("href=\"a/b\""));
}

}  // namespace
}  // namespace nccl_exporter::exporter
