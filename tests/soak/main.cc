// SPDX-License-Identifier: Apache-2.0
// The soak: jobs come and go, the daemon is scraped ten times a second in each of three formats,
// and nothing may grow, be missing, or go back.
#include <curl/curl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "tests/soak/job_mill.h"
#include "tests/soak/process_watch.h"
#include "tests/soak/scraper.h"
#include "tests/system/daemon.h"

namespace nccl_exporter::soak {
namespace {

// The daemon's history fills for ten minutes; the memory of shorter runs is shown, and not judged.
constexpr double kJudgedSeconds = 1500;
// The jobs of one third of the time are not those of another.
constexpr double kMemoryRoomKib = 1024;
// The daemon holds one for each segment, and one for each connection.
constexpr double kDescriptorRoom = 10;
// One for each scraper.
constexpr double kThreadRoom = 3;

struct Options {
  double seconds = 1800;
  double retention_seconds = 20;
};

class Soak {
 public:
  explicit Soak(const Options& options)
      : options_(options),
        daemon_(segments_.path(),
                {fmt::format("--segment.retention={}", options.retention_seconds)}),
        mill_(segments_.path(), options.retention_seconds, &findings_) {}

  // The exit code.
  int Run() {
    const double descriptors_at_start = HoldingsOf(daemon_.process().pid(), Now()).descriptors;
    mill_.Turn();
    for (const PageFormat format : kPageFormats) {
      scrapers_.push_back(std::make_unique<Scraper>(format, daemon_.Url("/metrics"),
                                                    options_.retention_seconds, &findings_));
      exporter::SleepMilliseconds(
          static_cast<int>(1000 * kScrapePeriodSeconds / std::size(kPageFormats)));
    }
    const double start = Now();
    for (int minute = 1; Now() - start < options_.seconds && daemon_.process().IsRunning();) {
      TakeSample();
      mill_.Turn();
      if (Now() - start >= 60 * minute) PrintMinute(minute++);
      exporter::SleepMilliseconds(1000);
    }
    mill_.StopAll();
    ExpectNothingIsLeft();
    for (const auto& scraper : scrapers_) scraper->Stop();
    ExpectDescriptors(descriptors_at_start);
    JudgeHoldings();
    EndDaemon();
    PrintSummary();
    return findings_.count() == 0 ? 0 : 1;
  }

 private:
  void TakeSample() {
    Holdings sample = HoldingsOf(daemon_.process().pid(), Now());
    sample.series = static_cast<double>(scrapers_.front()->figures().series);
    samples_.push_back(sample);
  }

  void PrintMinute(int minute) const {
    const Holdings& now = samples_.back();
    uint64_t answers = 0;
    double slowest = 0;
    double gap = 0;
    for (const auto& scraper : scrapers_) {
      const ScrapeFigures figures = scraper->figures();
      answers += figures.answers;
      slowest = std::max(slowest, figures.slowest_seconds);
      gap = std::max(gap, figures.longest_gap_seconds);
    }
    printf(
        "%3d min  %6.0f KiB resident  %2.0f descriptors  %2.0f threads  %5zu series  %6lu answers, "
        "slowest %3.0f ms, longest gap %3.0f ms  %4lu jobs  %zu found\n",
        minute, now.resident_kib, now.descriptors, now.threads, scrapers_.front()->figures().series,
        answers, 1000 * slowest, 1000 * gap, mill_.started(), findings_.count());
    fflush(stdout);
  }

  // Series and segments of ended jobs must be gone once their time is over.
  void ExpectNothingIsLeft() {
    const auto is_clean = [&] {
      return segments_.Files().empty() &&
             daemon_.Get("/metrics").body.find("nccl_job=") == std::string::npos;
    };
    constexpr int kPatienceSeconds = 10;
    exporter::SleepMilliseconds(static_cast<int>(1000 * options_.retention_seconds));
    if (!exporter::Eventually(is_clean, kPatienceSeconds))
      findings_.Add("series or segments of ended jobs are left");
  }

  // As many as before the first job; the daemon gives up the last connections in its own time.
  void ExpectDescriptors(double at_start) {
    double at_end = 0;
    const auto is_the_same = [&] {
      at_end = HoldingsOf(daemon_.process().pid(), Now()).descriptors;
      return at_end <= at_start;
    };
    if (!exporter::Eventually(is_the_same)) {
      findings_.Add(fmt::format("{} descriptors at start, {} at the end", at_start, at_end));
    }
    printf("\ndescriptors: %.0f before the first job, %.0f after the last\n", at_start, at_end);
  }

  void Judge(const char* what, double Holdings::*member, double room) {
    const Growth growth = GrowthOf(samples_, member);
    const bool is_judged = options_.seconds >= kJudgedSeconds;
    if (is_judged && growth.last_third > growth.second_third + room) {
      findings_.Add(
          fmt::format("{} grew from {} to {}", what, growth.second_third, growth.last_third));
    }
    printf("%-13s at most %6.0f in the second third, %6.0f in the last; slope %+.2f a minute%s\n",
           what, growth.second_third, growth.last_third, growth.slope_per_minute,
           is_judged ? "" : " (too short to judge)");
  }

  void JudgeHoldings() {
    Judge("resident KiB", &Holdings::resident_kib, kMemoryRoomKib);
    Judge("descriptors", &Holdings::descriptors, kDescriptorRoom);
    Judge("threads", &Holdings::threads, kThreadRoom);
    constexpr double kAnyNumber = std::numeric_limits<double>::infinity();
    Judge("series", &Holdings::series, kAnyNumber);
  }

  void EndDaemon() {
    daemon_.process().Signal(SIGTERM);
    const int code = daemon_.process().Wait();
    const std::string log = daemon_.process().AllOutput();
    if (code != 0) findings_.Add(fmt::format("the daemon ended with {}: {}", code, log));
    if (testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed())
      findings_.Add("an expectation failed");
    if (log.find("level=error") != std::string::npos)
      findings_.Add("the daemon logged errors: " + log);
  }

  void PrintSummary() const {
    for (const auto& scraper : scrapers_) {
      const ScrapeFigures figures = scraper->figures();
      const double answers = static_cast<double>(figures.answers);
      printf(
          "%-13s %lu answers of %.0f KiB, mean %.1f ms, slowest %.0f ms, longest gap %.0f ms; %lu "
          "series came and went\n",
          std::string(Name(scraper->format())).c_str(), figures.answers,
          static_cast<double>(figures.bytes) / answers / 1024, 1000 * figures.sum_seconds / answers,
          1000 * figures.slowest_seconds, 1000 * figures.longest_gap_seconds, figures.ended_series);
    }
    const double cpu = samples_.back().cpu_seconds - samples_.front().cpu_seconds;
    const double seconds = samples_.back().seconds - samples_.front().seconds;
    printf("%lu jobs, %lu of them killed; CPU of the daemon: %.1f %% of a core\n", mill_.started(),
           mill_.killed(), 100 * cpu / seconds);
    printf("%.0f s: %zu found\n", seconds, findings_.count());
  }

  const Options options_;
  Findings findings_;
  collector::ScratchDirectory segments_;
  Daemon daemon_;
  JobMill mill_;
  std::vector<std::unique_ptr<Scraper>> scrapers_;
  std::vector<Holdings> samples_;
};

}  // namespace
}  // namespace nccl_exporter::soak

int main(int argument_count, char** arguments) {
  nccl_exporter::soak::Options options;
  CLI::App app(
      "Scrapes a daemon ten times a second in three formats while jobs come and go. Exit code 1 on "
      "any finding.");
  app.add_option("--seconds", options.seconds, "how long")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--retention", options.retention_seconds,
         "the daemon's --segment.retention; jobs live for half of it to two and a half times")
      ->capture_default_str()
      ->check(CLI::Range(2, 300));
  CLI11_PARSE(app, argument_count, arguments);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  return nccl_exporter::soak::Soak(options).Run();
}
