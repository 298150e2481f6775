// SPDX-License-Identifier: Apache-2.0
// One look-up a sample: 30 pages of some thousand series a second are to cost the soak little.
#include "tests/soak/series_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace nccl_exporter::soak {
namespace {

// Uncertainty of the times of a page: its events happened at any time while the page was asked for,
// and an answer may take this long.
constexpr double kToleranceSeconds = 1;

// Complaints that are printed for each page; one fault is often seen in all series of a rank.
constexpr size_t kComplaintsTold = 3;

std::string_view LabelValue(std::string_view key, std::string_view label) {
  for (size_t at = key.find(label); at != std::string_view::npos; at = key.find(label, at + 1)) {
    const std::string_view rest = key.substr(at + label.size());
    const bool is_whole =
        at > 0 && (key[at - 1] == '{' || key[at - 1] == ',') && rest.starts_with("=\"");
    if (is_whole) return rest.substr(2, rest.find('"', 2) - 2);
  }
  return {};
}

// Empty for the daemon's metrics of itself.
std::string SubjectOf(std::string_view key) {
  const std::string_view job = LabelValue(key, "nccl_job");
  const std::string_view communicator = LabelValue(key, "comm");
  if (!communicator.empty())
    return fmt::format("{} {} {}", job, communicator, LabelValue(key, "rank"));
  const std::string_view pid = LabelValue(key, "pid");
  return pid.empty() ? std::string() : fmt::format("{} {}", job, pid);
}

// Key of the series if its process turns out to have several GPUs: such a process has no label
// `global_rank`. Empty if the key has no such label.
std::string WithoutGlobalRank(std::string_view key) {
  constexpr std::string_view kLabel = ",global_rank=\"";
  const size_t at = key.find(kLabel);
  if (at == std::string_view::npos) return {};
  const size_t end = key.find('"', at + kLabel.size());
  return std::string(key.substr(0, at)) + std::string(key.substr(end + 1));
}

// Gauges that a subject has for as long as it is there.
constexpr std::string_view kSteadyGauges[] = {"nccl_process_alive{", "nccl_communicator_info{",
                                              "nccl_collective_started_sequence{"};

bool IsWatched(const PageSample& sample) {
  return sample.only_grows || std::ranges::any_of(kSteadyGauges, [&](std::string_view name) {
           return sample.key.starts_with(name);
         });
}

bool IsAlive(const PageSample& sample) {
  return sample.key.starts_with("nccl_process_alive{") && sample.value == 1;
}

}  // namespace

bool SeriesWatch::Compare(PageFormat format, std::string_view page, double now_seconds) {
  ++page_;
  seen_ = 0;
  complaints_ = 0;
  const bool is_whole =
      ReadPage(format, page, [&](const PageSample& sample) { Take(sample, now_seconds); });
  if (is_whole && seen_ != series_.size()) DropUnseen(now_seconds);
  if (complaints_ > kComplaintsTold) {
    findings_->Add(
        fmt::format("{}, page {}: {} more findings", name_, page_, complaints_ - kComplaintsTold));
  }
  return is_whole;
}

void SeriesWatch::Take(const PageSample& sample, double now_seconds) {
  if (!IsWatched(sample)) return;
  ++seen_;
  const auto found = series_.find(sample.key);
  if (found == series_.end()) {
    TakeNew(sample, now_seconds);
    return;
  }
  Series& series = found->second;
  if (series.page == page_) Complain(sample.key, "is there twice");
  if (sample.only_grows && !(sample.value >= series.value)) {
    Complain(sample.key, fmt::format("goes back from {} to {}", series.value, sample.value));
  }
  if (sample.created_seconds != series.created_seconds) {
    Complain(sample.key, fmt::format("was created at {:.9f}, and now at {:.9f}",
                                     series.created_seconds, sample.created_seconds));
  }
  if (series.last_sign_of_life != nullptr &&
      ((sample.only_grows && sample.value > series.value) || IsAlive(sample))) {
    *series.last_sign_of_life = now_seconds;
  }
  series.value = sample.value;
  series.created_seconds = sample.created_seconds;
  series.page = page_;
}

void SeriesWatch::TakeNew(const PageSample& sample, double now_seconds) {
  if (ended_.contains(Hash()(sample.key))) Complain(sample.key, "was missing for a while");
  Series series{.value = sample.value, .created_seconds = sample.created_seconds, .page = page_};
  if (const std::string subject = SubjectOf(sample.key); !subject.empty()) {
    series.last_sign_of_life = &last_signs_of_life_.try_emplace(subject, now_seconds).first->second;
  }
  series_.emplace(sample.key, series);
}

void SeriesWatch::DropUnseen(double now_seconds) {
  for (auto it = series_.begin(); it != series_.end();) {
    const Series& series = it->second;
    if (series.page == page_) {
      ++it;
      continue;
    }
    if (series.last_sign_of_life == nullptr) {
      Complain(it->first, "has gone, though it is the daemon's own");
    } else if (const auto same = series_.find(WithoutGlobalRank(it->first));
               same != series_.end() && same->second.page == page_) {
      // The process's second GPU has shown.
    } else if (const double rest = now_seconds - *series.last_sign_of_life;
               rest < retention_seconds_ - kToleranceSeconds) {
      Complain(it->first, fmt::format("has gone {:.1f} s after the last sign of life", rest));
    }
    ended_.insert(Hash()(it->first));
    ++ended_series_;
    it = series_.erase(it);
  }
}

void SeriesWatch::Complain(std::string_view key, const std::string& what) {
  if (++complaints_ > kComplaintsTold) return;
  findings_->Add(fmt::format("{}, page {}: {} {}", name_, page_, key, what));
}

}  // namespace nccl_exporter::soak
