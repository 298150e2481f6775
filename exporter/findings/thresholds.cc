// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/thresholds.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "exporter/text/duration_text.h"

namespace nccl_exporter::exporter {
namespace {

using Ns = Thresholds::Ns;
using Json = nlohmann::json;

// Thresholds that rules alone read.
enum class RulesOnly { kDuration, kShare, kNumber };

struct Row {
  std::string_view key;
  std::variant<Ns Thresholds::*, double Thresholds::*, int Thresholds::*, RulesOnly> value;
};

constexpr auto kRows = std::to_array<Row>({
    {"interval", &Thresholds::interval},
    {"window", &Thresholds::window},
    {"hold", &Thresholds::hold},
    {"history", &Thresholds::history},
    {"warm-up", &Thresholds::warm_up},
    {"longest-step", &Thresholds::longest_step},
    {"straggler-threshold", &Thresholds::straggler_threshold},
    {"least-wait", &Thresholds::least_wait},
    {"last-arrival-share", &Thresholds::last_arrival_share},
    {"least-operations", &Thresholds::least_operations},
    {"hang-threshold", &Thresholds::hang_threshold},
    {"critical-threshold", &Thresholds::critical_threshold},
    {"halted-evaluations", &Thresholds::halted_evaluations},
    {"abandoned-hangs", &Thresholds::abandoned_hangs},
    {"stall-threshold", RulesOnly::kDuration},
    {"bandwidth-window", &Thresholds::losses_window},
    {"baseline", RulesOnly::kDuration},
    {"bandwidth-ratio", RulesOnly::kShare},
    {"network-ratio", RulesOnly::kNumber},
    {"lost-share", &Thresholds::lost_share},
    {"suspect-share", &Thresholds::suspect_share},
    {"suspect-median", &Thresholds::suspect_median},
    {"suspect-faults", &Thresholds::suspect_faults},
    {"suspect-clock", RulesOnly::kShare},
});

[[noreturn]] void Refuse(const std::string& key, const char* what) {
  throw std::runtime_error(fmt::format("\"{}\" {}", key, what));
}

Ns DurationOf(const std::string& key, const Json& value) {
  constexpr Ns kLongest = std::chrono::hours(24);
  const std::optional<Ns> duration =
      value.is_string() ? ParseDuration(value.get<std::string>()) : std::nullopt;
  if (!duration || *duration < std::chrono::milliseconds(1) || *duration > kLongest)
    Refuse(key, "is not a duration from 1ms to 24h, such as \"90s\"");
  return *duration;
}

double ShareOf(const std::string& key, const Json& value) {
  if (!value.is_number() || !(value.get<double>() > 0 && value.get<double>() < 1))
    Refuse(key, "is not a number between 0 and 1");
  return value.get<double>();
}

int CountOf(const std::string& key, const Json& value) {
  constexpr int kLeast = 2, kMost = 60;
  if (!value.is_number_integer() || value.get<int64_t>() < kLeast || value.get<int64_t>() > kMost)
    Refuse(key, "is not a whole number from 2 to 60");
  return value.get<int>();
}

void Store(const Row& row, const std::string& key, const Json& value, Thresholds& thresholds) {
  if (const auto* const time = std::get_if<Ns Thresholds::*>(&row.value)) {
    thresholds.** time = DurationOf(key, value);
  } else if (const auto* const share = std::get_if<double Thresholds::*>(&row.value)) {
    thresholds.** share = ShareOf(key, value);
  } else if (const auto* const count = std::get_if<int Thresholds::*>(&row.value)) {
    thresholds.** count = CountOf(key, value);
  } else if (std::get<RulesOnly>(row.value) == RulesOnly::kDuration) {
    DurationOf(key, value);
  } else if (std::get<RulesOnly>(row.value) == RulesOnly::kShare) {
    ShareOf(key, value);
  } else if (!value.is_number()) {
    Refuse(key, "is not a number");
  }
}

// The judge remembers ten minutes, and 64 judgements.
void CheckMemory(const Thresholds& thresholds) {
  constexpr Ns kHistory = kHistorySteps * kHistoryStep;
  constexpr int kMostIntervals = 63;
  if (thresholds.arrivals_window() > kHistory) Refuse("window", "is more than 5m");
  if (thresholds.losses_window > kHistory) Refuse("bandwidth-window", "is more than 10m");
  if (thresholds.history / thresholds.interval > kMostIntervals)
    Refuse("history", "is more than 63 intervals");
  if (thresholds.late_for() > thresholds.history)
    Refuse("hold", "is more than half of \"history\"");
}

Thresholds ThresholdsOf(const Json& file) {
  if (!file.is_object()) throw std::runtime_error("is no JSON object");
  Thresholds thresholds;
  for (const auto& [key, value] : file.items()) {
    const auto* const row = std::ranges::find(kRows, key, &Row::key);
    if (row == kRows.end()) Refuse(key, "is no threshold");
    Store(*row, key, value, thresholds);
  }
  CheckMemory(thresholds);
  return thresholds;
}

}  // namespace

Thresholds ReadThresholds(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  try {
    return ThresholdsOf(Json::parse(file));
  } catch (const Json::parse_error& error) {
    throw std::runtime_error(fmt::format("{}: is no JSON (byte {})", path, error.byte));
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

Thresholds Thresholds::Scaled(double divisor) const {
  Thresholds scaled = *this;
  const auto divide = [&](Ns& time) { time = std::chrono::duration_cast<Ns>(time / divisor); };
  for (const Row& row : kRows) {
    if (const auto* const time = std::get_if<Ns Thresholds::*>(&row.value)) divide(scaled.**time);
  }
  divide(scaled.step);
  divide(scaled.quiet);
  return scaled;
}

}  // namespace nccl_exporter::exporter
