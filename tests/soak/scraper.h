// SPDX-License-Identifier: Apache-2.0
// Scrapes the daemon in one format ten times a second, and has every page compared with those
// before it.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "tests/soak/findings.h"
#include "tests/soak/series_watch.h"

namespace nccl_exporter::soak {

inline constexpr double kScrapePeriodSeconds = 0.1;
// The shortest scrape timeout in use; ten scrapes' time.
inline constexpr double kSlowestAnswerSeconds = 1;

struct ScrapeFigures {
  uint64_t answers = 0;
  uint64_t bytes = 0;  // decompressed
  size_t series = 0;   // that only grow, now
  uint64_t ended_series = 0;
  double slowest_seconds = 0;
  double sum_seconds = 0;
  double longest_gap_seconds = 0;  // between two answers
};

// A thread of its own, until it is destroyed.
class Scraper {
 public:
  Scraper(PageFormat format, const std::string& url, double retention_seconds, Findings* findings);
  ~Scraper();
  Scraper(const Scraper&) = delete;
  Scraper& operator=(const Scraper&) = delete;

  PageFormat format() const { return format_; }
  ScrapeFigures figures() const;
  void Stop();

 private:
  void Run();
  void ScrapeOnce(void* curl, bool on_new_connection);

  const PageFormat format_;
  const std::string url_;
  Findings* const findings_;
  SeriesWatch watch_;
  std::string page_;
  double last_answer_seconds_ = 0;
  mutable std::mutex mutex_;
  ScrapeFigures figures_;
  std::atomic<bool> is_stopped_ = false;
  std::thread thread_;
};

// Seconds of the monotonic clock.
double Now();

}  // namespace nccl_exporter::soak
