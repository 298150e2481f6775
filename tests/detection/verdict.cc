// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/verdict.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace nccl_exporter::detection {
namespace {

constexpr double kClockSlackSeconds = 1;  // between the job's start and the scenario's

std::optional<int> NumberAtStartOf(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::string Described(const PagedAlert& alert) {
  char time[32];
  snprintf(time, sizeof(time), "%.1f s", alert.started_s);
  std::string text = alert.Label("alertname") + " at " + time;
  for (const char* name : {"comm_name", "comm", "rank", "gpu", "node", "instance", "severity"}) {
    if (!alert.Label(name).empty()) text += std::string(" ") + name + "=" + alert.Label(name);
  }
  return text;
}

bool IsRight(const Expectation& expectation, const PagedAlert& alert, const Directory& directory) {
  if (expectation.rank >= 0) return directory.RankOf(alert) == expectation.rank;
  return expectation.node < 0 || directory.NodeOf(alert) == expectation.node;
}

bool NamesSomebody(const Expectation& expectation) {
  return expectation.rank >= 0 || expectation.node >= 0;
}

void JudgeAlert(const Scenario& scenario, const PagedAlert& alert, const std::string& its_class,
                const Directory& directory, Verdict& verdict) {
  if (std::count(scenario.tolerated.begin(), scenario.tolerated.end(), its_class) > 0) return;
  ClassVerdict& counts = verdict.classes[its_class];
  bool is_expected = false;
  bool is_right = false;
  bool names = false;
  for (const Expectation& expectation : scenario.expected) {
    if (expectation.alert != its_class || alert.started_s < expectation.from - kClockSlackSeconds)
      continue;
    is_expected = true;
    names |= NamesSomebody(expectation);
    is_right |= IsRight(expectation, alert, directory);
  }
  if (!is_expected) {
    ++counts.false_alarms;
    verdict.complaints.push_back("false alarm: " + Described(alert));
    return;
  }
  ++counts.true_alarms;
  if (!names) return;
  ++(is_right ? counts.named_right : counts.named_wrong);
  if (!is_right) verdict.complaints.push_back("names the wrong one: " + Described(alert));
}

}  // namespace

std::optional<int> Directory::RankOf(const PagedAlert& alert) const {
  const auto found = global_ranks.find({alert.Label("comm"), alert.Label("rank")});
  if (found != global_ranks.end()) return found->second;
  return NumberAtStartOf(alert.Label("global_rank"));
}

std::optional<int> Directory::NodeOf(const PagedAlert& alert) const {
  if (const std::optional<int> rank = RankOf(alert)) return *rank / ranks_per_node;
  for (const char* name : {"node", "instance"}) {
    const std::string label = alert.Label(name);
    const size_t digits = label.find_first_of("0123456789");
    if (digits != std::string::npos) return NumberAtStartOf(label.substr(digits));
  }
  return std::nullopt;
}

Scenario WithPageExpectations(Scenario scenario) {
  const std::vector<Expectation> of_alerts = scenario.expected;
  for (Expectation expectation : of_alerts) {
    const bool is_whole_node = expectation.alert == "straggler" && expectation.rank < 0;
    const bool names = expectation.alert == "straggler" || expectation.alert == "culprit";
    expectation.alert = "page-" + expectation.alert;
    names && !is_whole_node ? scenario.expected.push_back(expectation)
                            : scenario.tolerated.push_back(expectation.alert);
  }
  const std::vector<std::string> tolerated = scenario.tolerated;
  for (const std::string& its_class : tolerated) scenario.tolerated.push_back("page-" + its_class);
  return scenario;
}

Verdict Judge(const Scenario& scenario, const std::vector<PagedAlert>& alerts,
              const Directory& directory, const std::map<std::string, std::string>& class_of) {
  Verdict verdict;
  const auto class_of_alert = [&](const PagedAlert& alert) {
    const auto found = class_of.find(alert.Label("alertname"));
    return found == class_of.end() ? std::string() : found->second;
  };
  for (const PagedAlert& alert : alerts) {
    const std::string its_class = class_of_alert(alert);
    if (!its_class.empty()) JudgeAlert(scenario, alert, its_class, directory, verdict);
  }
  for (const Expectation& expectation : scenario.expected) {
    ClassVerdict& counts = verdict.classes[expectation.alert];
    ++counts.expected;
    std::optional<double> first_s;
    for (const PagedAlert& alert : alerts) {
      const bool meets = class_of_alert(alert) == expectation.alert &&
                         IsRight(expectation, alert, directory) &&
                         alert.started_s >= expectation.from - kClockSlackSeconds;
      if (meets) first_s = std::min(first_s.value_or(alert.started_s), alert.started_s);
    }
    if (first_s) {
      ++counts.met;
      counts.delays_s.push_back(std::max(0.0, *first_s - expectation.from));
    } else {
      verdict.complaints.push_back("missed: " + expectation.alert);
    }
  }
  return verdict;
}

}  // namespace nccl_exporter::detection
