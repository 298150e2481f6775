// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/verdict.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>

namespace nccl_exporter::detection {
namespace {

constexpr double kClockSlackSeconds = 1;  // between the job's start and the scenario's

std::optional<int> NumberAtStartOf(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// The number in the label `node`, else in `instance`.
std::optional<int> NumberedNode(const PagedAlert& alert) {
  for (const char* name : {"node", "instance"}) {
    const std::string label = alert.Label(name);
    const size_t digits = label.find_first_of("0123456789");
    if (digits != std::string::npos) return NumberAtStartOf(label.substr(digits));
  }
  return std::nullopt;
}

std::string Described(const PagedAlert& alert) {
  char time[32];
  snprintf(time, sizeof(time), "%.1f s", alert.started_s);
  std::string text = alert.Label("alertname") + " at " + time;
  for (const char* name : {"nccl_job", "comm_name", "comm", "rank", "gpu", "node", "instance", "severity"}) {
    if (!alert.Label(name).empty()) text += std::string(" ") + name + "=" + alert.Label(name);
  }
  return text;
}

bool IsRight(const Expectation& expectation, const PagedAlert& alert, const Directory& directory) {
  if (expectation.rank < 0)
    return expectation.node < 0 || directory.NodeOf(alert) == expectation.node;
  const std::optional<int> rank = directory.RankOf(alert);
  return rank && *rank / expectation.ranks == expectation.rank / expectation.ranks;
}

bool IsInTime(const Expectation& expectation, const PagedAlert& alert) {
  return alert.started_s >= expectation.from - kClockSlackSeconds &&
         (!expectation.to || alert.started_s <= *expectation.to + kClockSlackSeconds);
}

// An alert of its class that has the labels.
bool IsOf(const Expectation& expectation, const PagedAlert& alert, const std::string& its_class) {
  return expectation.alert == its_class &&
         (expectation.job.empty() || alert.Label("nccl_job") == expectation.job) &&
         (expectation.severity.empty() || alert.Label("severity") == expectation.severity);
}

bool NamesSomebody(const Expectation& expectation) {
  return expectation.rank >= 0 || expectation.node >= 0;
}

void JudgeAlert(const Scenario& scenario, const PagedAlert& alert, const std::string& its_class,
                const Directory& directory, Verdict& verdict) {
  const auto tolerates = [&](const Expectation& tolerated) {
    return IsOf(tolerated, alert, its_class) && IsInTime(tolerated, alert) &&
           IsRight(tolerated, alert, directory);
  };
  if (std::ranges::any_of(scenario.tolerated, tolerates)) return;
  ClassVerdict& counts = verdict.classes[its_class];
  bool is_expected = false;
  bool is_right = false;
  bool names = false;
  for (const Expectation& expectation : scenario.expected) {
    if (!IsOf(expectation, alert, its_class) || !IsInTime(expectation, alert)) continue;
    is_expected = true;
    names |= NamesSomebody(expectation);
    is_right |= IsRight(expectation, alert, directory);
    if (expectation.to && alert.seen_s > *expectation.to + kLongestRestSeconds)
      verdict.complaints.push_back("not over: " + Described(alert));
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

// `alerts` meet the expectation, in the order of their starts. Says where none is shown before the
// trouble is over.
void JudgeStay(const Expectation& expectation, const std::vector<PagedAlert>& alerts, double end_s,
               Verdict& verdict) {
  const auto complain = [&](const char* what, double at_s) {
    char time[32];
    snprintf(time, sizeof(time), " at %.1f s", at_s);
    verdict.complaints.push_back(what + expectation.alert + time);
  };
  double seen_s = alerts.front().started_s;
  for (const PagedAlert& alert : alerts) {
    if (alert.started_s > seen_s + kLongestGapSeconds) complain("interrupted: ", seen_s);
    seen_s = std::max(seen_s, alert.seen_s);
  }
  if (seen_s + kLongestGapSeconds < expectation.to.value_or(end_s)) complain("forgotten: ", seen_s);
}

}  // namespace

std::optional<int> Directory::RankOf(const PagedAlert& alert) const {
  const auto found = global_ranks.find({alert.Label("comm"), alert.Label("rank")});
  if (found != global_ranks.end()) return found->second;
  if (const std::optional<int> rank = NumberAtStartOf(alert.Label("global_rank"))) return rank;
  const std::optional<int> gpu = NumberAtStartOf(alert.Label("gpu"));
  const std::optional<int> node = NumberedNode(alert);
  return gpu && node ? std::optional(*node * ranks_per_node + *gpu) : std::nullopt;
}

std::optional<int> Directory::NodeOf(const PagedAlert& alert) const {
  if (const std::optional<int> rank = RankOf(alert)) return *rank / ranks_per_node;
  return NumberedNode(alert);
}

std::string ClassOf(const PagedAlert& alert, const std::map<std::string, std::string>& class_of) {
  const auto found = class_of.find(alert.Label("alertname"));
  return found == class_of.end() ? std::string() : found->second;
}

Scenario WithPageExpectations(Scenario scenario) {
  const std::vector<Expectation> of_alerts = scenario.expected;
  for (Expectation expectation : of_alerts) {
    if (expectation.severity == "critical") continue;  // the finding began as a warning
    const bool is_whole_node = expectation.alert == "straggler" && expectation.rank < 0;
    const bool names = expectation.alert == "straggler" || expectation.alert == "culprit";
    expectation.alert = "page-" + expectation.alert;
    expectation.name.clear();
    expectation.severity.clear();  // of the finding: another moment than the alert's
    if (expectation.ranks > 1) {
      expectation.node = expectation.rank / scenario.jobs.front().ranks_per_node;
      expectation.rank = -1;
    }
    (names && !is_whole_node && expectation.is_on_page ? scenario.expected : scenario.tolerated).push_back(expectation);
  }
  const std::vector<Expectation> tolerated = scenario.tolerated;
  for (Expectation expectation : tolerated) {
    if (IsPageClass(expectation.alert)) continue;
    expectation.alert = "page-" + expectation.alert;
    scenario.tolerated.push_back(expectation);
  }
  return scenario;
}

Verdict Judge(const Scenario& scenario, const std::vector<PagedAlert>& alerts,
              const Directory& directory, const std::map<std::string, std::string>& class_of) {
  Verdict verdict;
  for (const PagedAlert& alert : alerts) {
    const std::string its_class = ClassOf(alert, class_of);
    if (!its_class.empty()) JudgeAlert(scenario, alert, its_class, directory, verdict);
  }
  for (const Expectation& expectation : scenario.expected) {
    ClassVerdict& counts = verdict.classes[expectation.alert];
    ++counts.expected;
    std::vector<PagedAlert> meeting;
    std::ranges::copy_if(alerts, std::back_inserter(meeting), [&](const PagedAlert& alert) {
      return IsOf(expectation, alert, ClassOf(alert, class_of)) &&
             (expectation.name.empty() || alert.Label("alertname") == expectation.name) &&
             IsInTime(expectation, alert) && IsRight(expectation, alert, directory);
    });
    if (meeting.empty()) {
      verdict.complaints.push_back(
          "missed: " + (expectation.name.empty() ? expectation.alert : expectation.name));
      continue;
    }
    std::ranges::sort(meeting, {}, &PagedAlert::started_s);
    ++counts.met;
    counts.delays_s.push_back(std::max(0.0, meeting.front().started_s - expectation.from));
    if (!IsPageClass(expectation.alert)) JudgeStay(expectation, meeting, scenario.seconds, verdict);
  }
  return verdict;
}

}  // namespace nccl_exporter::detection
