// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/incident.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace nccl_exporter::sim {
namespace {

struct SettingRow {
  Setting id;
  std::string_view name;
};
constexpr std::array<SettingRow, kSettingCount> kSettings{{
    {Setting::kRank, "rank"},
    {Setting::kNode, "node"},
    {Setting::kTo, "to"},
    {Setting::kPercent, "percent"},
    {Setting::kTimes, "times"},
    {Setting::kSeconds, "seconds"},
    {Setting::kFrom, "from"},
    {Setting::kUntil, "until"},
    {Setting::kEvery, "every"},
    {Setting::kFor, "for"},
    {Setting::kRamp, "ramp"},
}};
static_assert(IsInOrder(kSettings));
// Settings that every kind has in addition.
constexpr std::string_view kTimes = "from=0 until=-1 every=-1 for=-1 ramp=0";

constexpr std::array<IncidentTraits, kCountOf<IncidentKind>> kIncidents{{
    {IncidentKind::kSlowRank, "slow-rank", "rank=0 percent=10",
     "the rank's program comes late to every step"},
    {IncidentKind::kSlowGpu, "slow-gpu", "rank=0 percent=10", "the rank's GPU computes longer"},
    {IncidentKind::kSlowNode, "slow-node", "node=0 percent=10",
     "all GPUs of the node compute longer"},
    {IncidentKind::kSlowLink, "slow-link", "node=0 to=1 times=4",
     "operations of communicators that span both nodes take `times` times as long"},
    {IncidentKind::kSlowAdapter, "slow-adapter", "rank=0 times=4",
     "what the rank sends or receives between nodes takes `times` times as long on the wire"},
    {IncidentKind::kSlowReceiver, "slow-receiver", "rank=0 times=4",
     "the rank's adapter takes up receives late, so that its sender has no credit: steps take "
     "`times` times as long"},
    {IncidentKind::kSlowFlush, "slow-flush", "rank=0 times=4",
     "received data take long to the rank's GPU: steps take `times` times as long"},
    {IncidentKind::kMissingCall, "missing-call", "rank=0",
     "the rank stops calling in the middle of a step, and its process stays alive"},
    {IncidentKind::kMismatchedCall, "mismatched-call", "rank=0",
     "the rank makes another call than the others, and neither ends"},
    {IncidentKind::kKill, "kill", "rank=0", "the rank's process is killed in the middle of a step"},
    {IncidentKind::kStop, "stop", "rank=0",
     "the rank's process is stopped (SIGSTOP) in the middle of a step; its GPU goes on"},
    {IncidentKind::kNetworkHang, "network-hang", "node=0 to=1",
     "operations of communicators that span both nodes never end"},
    {IncidentKind::kUneven, "uneven", "rank=-1 node=-1 percent=10",
     "the rank, or the whole node, computes longer by design"},
    {IncidentKind::kMoving, "moving", "percent=10",
     "about one rank in nine computes longer; the seed chooses other ranks every `every` seconds"},
    {IncidentKind::kVarying, "varying", "percent=10",
     "each rank computes longer in every step, by a random share of up to `percent`"},
    {IncidentKind::kWarmUp, "warm-up", "percent=100",
     "every step takes longer by a random share of up to `percent`, which decreases to 0 at "
     "`until`"},
    {IncidentKind::kPause, "pause", "rank=-1 node=-1 seconds=1",
     "the rank, the node or all ranks pause between two steps"},
    {IncidentKind::kSpikes, "spikes", "percent=1 seconds=0.05",
     "`percent` of the steps of a rank begin late by `seconds`"},
    {IncidentKind::kEvaluation, "evaluation", "", "steps have only their last call"},
    {IncidentKind::kClockStep, "clock-step", "node=0 seconds=1",
     "the wall clock of the node is set forward by `seconds` (may be negative)"},
}};
static_assert(IsInOrder(kIncidents));

// The settings of a kind with their standards, `times` included.
std::array<std::optional<double>, kSettingCount> StandardsOf(const IncidentTraits& traits) {
  std::array<std::optional<double>, kSettingCount> standards;
  for (std::string_view rest : {traits.settings, kTimes}) {
    while (!rest.empty()) {
      const std::string_view pair = rest.substr(0, rest.find(' '));
      const std::string_view name = pair.substr(0, pair.find('='));
      const auto* const row = std::ranges::find(kSettings, name, &SettingRow::name);
      double value = 0;
      std::from_chars(pair.data() + name.size() + 1, pair.data() + pair.size(), value);
      standards[static_cast<size_t>(row->id)] = value;
      rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    }
  }
  return standards;
}

// `text`: NAME=VALUE. What is wrong with it; empty if nothing is.
std::string SetOne(Incident& incident,
                   const std::array<std::optional<double>, kSettingCount>& standards,
                   std::string_view text) {
  const IncidentTraits& traits = TraitsOf(incident.kind);
  const std::string_view name = text.substr(0, text.find('='));
  const auto* const row = std::ranges::find(kSettings, name, &SettingRow::name);
  if (row == kSettings.end() || !standards[static_cast<size_t>(row->id)]) {
    return fmt::format("--incident {} has no setting {}", traits.name, name);
  }
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] =
      std::from_chars(std::min(end, text.data() + name.size() + 1), end, value);
  if (error != std::errc() || stop != end)
    return fmt::format("--incident {}: bad {}", traits.name, text);
  incident.settings[static_cast<size_t>(row->id)] = value;
  return "";
}

// A rank or node that the job does not have would make an incident without effect, and a test
// that cannot fail.
std::string CheckPlaces(const Incident& incident, const ClusterShape& shape) {
  const std::string_view name = TraitsOf(incident.kind).name;
  if (incident.rank() >= shape.ranks())
    return fmt::format("--incident {}: rank {}, but the job has {} ranks", name, incident.rank(),
                       shape.ranks());
  for (const int node : {incident.node(), incident.to()}) {
    if (node >= shape.nodes)
      return fmt::format("--incident {}: node {}, but the job has {} nodes", name, node,
                         shape.nodes);
  }
  return "";
}

}  // namespace

bool Incident::Concerns(int a_rank, const ClusterShape& shape) const {
  if (rank() >= 0) return rank() == a_rank;
  return node() < 0 || node() == shape.NodeOf(a_rank);
}

// Between 0 and 1. Nothing before `from` and after `until`; in each period of `every` seconds only
// for the first `for` of them; rising in the first `ramp` seconds.
double Incident::Strength(int64_t job_ns) const {
  const double since = static_cast<double>(job_ns) / 1e9 - (*this)[Setting::kFrom];
  const double until = (*this)[Setting::kUntil];
  const double every = (*this)[Setting::kEvery];
  if (since < 0 || (until >= 0 && static_cast<double>(job_ns) / 1e9 >= until)) return 0;
  if (every > 0 && (*this)[Setting::kFor] >= 0 && std::fmod(since, every) >= (*this)[Setting::kFor])
    return 0;
  const double ramp = (*this)[Setting::kRamp];
  return ramp > 0 ? std::min(1.0, since / ramp) : 1.0;
}

// Strikes of an incident that happens at moments: once at `from`, or every `every` seconds until
// the end.
int64_t Incident::StrikesBetween(int64_t after_ns, int64_t until_ns) const {
  const int64_t end_ns = (*this)[Setting::kUntil] >= 0 ? Ns((*this)[Setting::kUntil]) : INT64_MAX;
  const int64_t every_ns = Ns((*this)[Setting::kEvery]);
  const auto strikes_by = [&](int64_t job_ns) -> int64_t {
    const int64_t since_ns = std::min(job_ns, end_ns) - from_ns();
    if (since_ns < 0) return 0;
    return every_ns > 0 ? since_ns / every_ns + 1 : 1;
  };
  return strikes_by(until_ns) - strikes_by(after_ns);
}

const IncidentTraits& TraitsOf(IncidentKind kind) { return RowIn(kIncidents, kind); }

std::optional<Incident> ParseIncident(std::string_view text, const ClusterShape& shape,
                                      std::string& error) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto* const row = std::ranges::find(kIncidents, name, &IncidentTraits::name);
  if (row == kIncidents.end()) {
    error = fmt::format("--incident {}: there is no such incident", name);
    return std::nullopt;
  }
  Incident incident{.kind = row->id, .settings = {}};
  const auto standards = StandardsOf(*row);
  for (size_t i = 0; i < kSettingCount; ++i) incident.settings[i] = standards[i].value_or(-1);
  std::string_view rest = text.substr(std::min(text.size(), name.size() + 1));
  while (!rest.empty() && error.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    error = SetOne(incident, standards, one);
    rest = rest.substr(std::min(rest.size(), one.size() + 1));
  }
  if (error.empty()) error = CheckPlaces(incident, shape);
  return error.empty() ? std::optional(incident) : std::nullopt;
}

std::string IncidentHelp() {
  std::string help =
      "NAME or NAME:SETTING=VALUE,...: an incident of the job (repeatable). Percentages are of a "
      "step's period, times are seconds of the job. All have " +
      std::string(kTimes) + " (-1: unlimited)";
  for (const IncidentTraits& traits : kIncidents) {
    help += fmt::format("\n  {}{}{}: {}", traits.name, traits.settings.empty() ? "" : " ",
                        traits.settings, traits.help);
  }
  return help;
}

}  // namespace nccl_exporter::sim
