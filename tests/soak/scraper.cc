// SPDX-License-Identifier: Apache-2.0
// libcurl on one handle, which keeps a connection; every second scrape takes a new one and closes
// it.
#include "tests/soak/scraper.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace nccl_exporter::soak {
namespace {

size_t Append(char* data, size_t size, size_t count, void* page) {
  static_cast<std::string*>(page)->append(data, size * count);
  return size * count;
}

}  // namespace

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Scraper::Scraper(PageFormat format, const std::string& url, double retention_seconds,
                 Findings* findings)
    : format_(format),
      url_(url),
      findings_(findings),
      watch_(std::string(Name(format)), retention_seconds, findings),
      thread_([this] { Run(); }) {}

Scraper::~Scraper() { Stop(); }

void Scraper::Stop() {
  is_stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

ScrapeFigures Scraper::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void Scraper::Run() {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, std::string(AcceptHeader(format_)).c_str()), curl_slist_free_all);
  curl_easy_setopt(curl.get(), CURLOPT_URL, url_.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, 20L);
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &page_);
  if (format_ != PageFormat::kText) curl_easy_setopt(curl.get(), CURLOPT_ACCEPT_ENCODING, "gzip");
  double due = Now();
  for (uint64_t i = 0; !is_stopped_; ++i) {
    ScrapeOnce(curl.get(), i % 2 == 1);
    due = std::max(due + kScrapePeriodSeconds, Now());
    std::this_thread::sleep_for(std::chrono::duration<double>(due - Now()));
  }
}

void Scraper::ScrapeOnce(void* curl, bool on_new_connection) {
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, on_new_connection ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, on_new_connection ? 1L : 0L);
  page_.clear();
  const double start = Now();
  const CURLcode result = curl_easy_perform(curl);
  const double end = Now();
  long status = 0;
  const char* type = nullptr;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
  const auto complain = [&](const std::string& what) {
    findings_->Add(fmt::format("{}: {}", Name(format_), what));
  };
  if (result != CURLE_OK || status != 200) {
    complain(fmt::format("status {}, {}", status, curl_easy_strerror(result)));
    return;
  }
  if (type == nullptr || !std::string_view(type).starts_with(ContentType(format_)))
    complain("another content type");
  if (!watch_.Compare(format_, page_, start))
    complain(fmt::format("a page of {} bytes is not whole", page_.size()));
  const double gap = last_answer_seconds_ > 0 ? end - last_answer_seconds_ : 0;
  last_answer_seconds_ = end;
  if (end - start > kSlowestAnswerSeconds)
    complain(fmt::format("an answer took {:.2f} s", end - start));
  if (gap > kSlowestAnswerSeconds + kScrapePeriodSeconds)
    complain(fmt::format("no answer for {:.2f} s", gap));
  const std::lock_guard lock(mutex_);
  ++figures_.answers;
  figures_.bytes += page_.size();
  figures_.series = watch_.series();
  figures_.ended_series = watch_.ended_series();
  figures_.sum_seconds += end - start;
  figures_.slowest_seconds = std::max(figures_.slowest_seconds, end - start);
  figures_.longest_gap_seconds = std::max(figures_.longest_gap_seconds, gap);
}

}  // namespace nccl_exporter::soak
