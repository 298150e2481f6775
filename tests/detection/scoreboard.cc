// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/scoreboard.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace nccl_exporter::detection {
namespace {

struct Delays {
  double median;
  double most;
};

// In intervals.
std::optional<Delays> DelaysOf(std::vector<double> delays_s, double interval_s) {
  if (delays_s.empty()) return std::nullopt;
  std::sort(delays_s.begin(), delays_s.end());
  return Delays{delays_s[delays_s.size() / 2] / interval_s, delays_s.back() / interval_s};
}

std::string Text(const std::optional<Delays>& delays) {
  if (!delays) return "-";
  char text[64];
  snprintf(text, sizeof(text), "%.0f / %.0f", delays->median, delays->most);
  return text;
}

template <typename... Columns>
std::string Row(Columns... columns) {
  char text[256];
  snprintf(text, sizeof(text), "%-14s %-30s %-30s %-30s %s\n", columns...);
  return text;
}

}  // namespace

double Share::Bound(int side) const {
  constexpr double kZ = 1.959964;
  if (of == 0) return side < 0 ? 0 : 1;
  const double n = of;
  const double p = hits / n;
  const double root = std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  return std::clamp((p + kZ * kZ / (2 * n) + side * kZ * root) / (1 + kZ * kZ / n), 0.0, 1.0);
}

std::string Share::Text() const {
  if (of == 0) return "-";
  char text[64];
  snprintf(text, sizeof(text), "%.1f %% [%.1f, %.1f] %d/%d", 100.0 * hits / of, 100 * low(),
           100 * high(), hits, of);
  return text;
}

nlohmann::json Share::Json() const {
  nlohmann::json json{{"low", low()}, {"high", high()}, {"hits", hits}, {"of", of}};
  if (of > 0) json["share"] = static_cast<double>(hits) / of;
  return json;
}

void Share::Count(int right, int wrong) {
  if (right + wrong == 0) return;
  ++of;
  hits += wrong == 0 ? 1 : 0;
}

void Scoreboard::Add(const Scenario& scenario, const Verdict& verdict) {
  ++runs_;
  flawed_runs_ += verdict.complaints.empty() ? 0 : 1;
  bool is_quiet = true;
  bool is_quiet_page = true;
  for (const auto& [name, verdict_of] : verdict.classes) {
    ClassSum& sum = classes_[name];
    sum.recall.of += verdict_of.expected;
    sum.recall.hits += verdict_of.met;
    sum.precision.Count(verdict_of.true_alarms, verdict_of.false_alarms);
    sum.named_right.Count(verdict_of.named_right, verdict_of.named_wrong);
    sum.delays_s.insert(sum.delays_s.end(), verdict_of.delays_s.begin(), verdict_of.delays_s.end());
    (IsPageClass(name) ? is_quiet_page : is_quiet) &= verdict_of.false_alarms == 0;
  }
  if (!scenario.expected.empty()) return;
  ++quiet_.of;
  quiet_.hits += is_quiet ? 1 : 0;
  ++quiet_pages_.of;
  quiet_pages_.hits += is_quiet_page ? 1 : 0;
}

std::string Scoreboard::Table(double evaluation_interval_s) const {
  std::string table =
      Row("alert", "recall", "precision", "named right", "delay, median / most (intervals)");
  for (const auto& [name, sum] : classes_) {
    table += Row(name.c_str(), sum.recall.Text().c_str(), sum.precision.Text().c_str(),
                 sum.named_right.Text().c_str(),
                 Text(DelaysOf(sum.delays_s, evaluation_interval_s)).c_str());
  }
  table += "negative runs without an alert: " + quiet_.Text() + "\n";
  table += "negative runs without a finding: " + quiet_pages_.Text() + "\n";
  return table + std::to_string(runs_) + " runs, " + std::to_string(flawed_runs_) +
         " with a flaw\n";
}

nlohmann::json Scoreboard::Json(double evaluation_interval_s) const {
  nlohmann::json classes = nlohmann::json::object();
  for (const auto& [name, sum] : classes_) {
    nlohmann::json& json = classes[name];
    json = {{"recall", sum.recall.Json()},
            {"precision", sum.precision.Json()},
            {"named_right", sum.named_right.Json()}};
    const std::optional<Delays> delays = DelaysOf(sum.delays_s, evaluation_interval_s);
    if (delays) json["delay_intervals"] = {{"median", delays->median}, {"most", delays->most}};
  }
  return {{"runs", runs_},
          {"flawed", flawed_runs_},
          {"silent", quiet_.Json()},
          {"silent_pages", quiet_pages_.Json()},
          {"classes", classes}};
}

}  // namespace nccl_exporter::detection
