// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "exporter/cli/job/job_text.h"
#include "exporter/cli/job/named_ranks.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

// Null where it is not known.
Json TimeOf(double seconds) { return seconds > 0 ? Json(seconds) : Json(); }
Json NumberOf(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? Json(*number) : Json();
}
Json TextsOf(const std::vector<std::string>& texts) {
  Json all = Json::array();
  for (const std::string& text : texts) all.push_back(PrintablePath(text));
  return all;
}

const char* NameOf(Life life) {
  switch (life) {
    case Life::kLives:
      return "alive";
    case Life::kStopped:
      return "stopped";
    case Life::kEnded:
      return "ended";
    case Life::kHalted:
      break;
  }
  return "ended_or_stopped";
}

const char* NameOf(Motion motion) {
  switch (motion) {
    case Motion::kWaits:
      return "waits";
    case Motion::kHeld:
      return "in_operation";
    case Motion::kMoves:
      return "moves";
    case Motion::kIdle:
      return "idle";
    case Motion::kUnused:
      return "not_used";
    case Motion::kEnded:
      return "ended";
    case Motion::kUnknown:
      break;
  }
  return "unknown";
}

Json JsonOf(const Job& job) {
  return {{"cluster", PrintablePath(job.cluster)},
          {"namespace", PrintablePath(job.name_space)},
          {"nccl_job", PrintablePath(job.nccl_job)},
          {"slurm_job_names", TextsOf(job.slurm_job_names)},
          {"uid", PrintablePath(job.uid)},
          {"pods", PrintablePath(job.pod_prefix)},
          {"processes", job.processes}};
}

// Labels of a rank, without its communicator.
Json RankOf(const JobPlace& place) {
  return {{"rank", PrintablePath(place.rank)},
          {"global_rank", PrintablePath(place.global_rank)},
          {"gpu", PrintablePath(place.gpu)},
          {"hostname", PrintablePath(place.node)},
          {"instance", PrintablePath(place.instance)},
          {"pid", PrintablePath(place.pid)},
          {"pod", PrintablePath(place.pod)},
          {"container", PrintablePath(place.container)}};
}

Json JsonOf(const JobAlert& alert) {
  Json json{{"alertname", PrintablePath(alert.name)},
            {"severity", PrintablePath(alert.severity)},
            {"since", TimeOf(alert.since)},
            {"function", PrintablePath(alert.function)},
            {"comm", PrintablePath(alert.place.comm)},
            {"comm_name", PrintablePath(alert.place.comm_name)}};
  json.update(RankOf(alert.place));
  return json;
}

Json JsonOf(const NamedRank& rank) {
  Json communicators = Json::array();
  for (const auto& [id, name] : rank.communicators) communicators.push_back(PrintablePath(id));
  Json json = RankOf(rank.place);
  json.update(Json{{"communicators", std::move(communicators)},
                   {"alerts", TextsOf(rank.alerts)},
                   {"since", TimeOf(rank.since)},
                   {"process", NameOf(rank.life)},
                   {"reported", rank.is_reported},
                   {"behind", NumberOf(rank.behind)},
                   {"late_share", NumberOf(rank.late_share)},
                   {"state", rank.StateText()}});
  return json;
}

Json JsonOf(const JobRank& rank) {
  Json json = RankOf(rank.place);
  json.update(Json{{"process", NameOf(rank.life)},
                   {"waits", rank.waits},
                   {"started", NumberOf(rank.started)},
                   {"operations_in_flight", NumberOf(rank.in_flight)},
                   {"in_flight", PrintablePath(rank.function)},
                   {"in_flight_since", TimeOf(rank.in_flight_since)}});
  return json;
}

Json JsonOf(const JobCommunicator& communicator) {
  Json ranks = Json::array();
  for (const JobRank& rank : communicator.ranks) ranks.push_back(JsonOf(rank));
  return {{"comm", PrintablePath(communicator.id)},
          {"comm_name", PrintablePath(communicator.name)},
          {"size", communicator.size > 0 ? NumberOf(communicator.size) : Json()},
          {"state", NameOf(communicator.motion())},
          {"started", NumberOf(communicator.started)},
          {"last_progress", TimeOf(communicator.last_progress)},
          {"ranks", std::move(ranks)}};
}

template <typename Value>
Json ListOf(const std::vector<Value>& values) {
  Json list = Json::array();
  for (const Value& value : values) list.push_back(JsonOf(value));
  return list;
}

}  // namespace

std::string JobJson(const JobState& state, const Warnings& warnings) {
  const NamedRanks named = NamedRanksOf(state);
  const Json all{{"warnings", TextsOf(warnings)},
                 {"job", JsonOf(state.job)},
                 {"taken", TimeOf(state.time)},
                 {"processes", state.processes},
                 {"nodes", state.nodes},
                 {"judged", state.is_judged},
                 {"rules_age", state.is_judged ? NumberOf(state.rules_age) : Json()},
                 {"timed", state.is_timed},
                 {"untimed_reasons", TextsOf(state.untimed_reasons)},
                 {"waiting_gpus", NumberOf(state.waiting_gpus)},
                 {"alerts", ListOf(state.alerts)},
                 {"named", ListOf(named.named)},
                 {"perhaps", ListOf(named.perhaps)},
                 {"communicators", ListOf(state.communicators)}};
  return all.dump() + '\n';
}

std::string JobsJson(const std::vector<Job>& jobs, const Warnings& warnings) {
  return Json{{"warnings", TextsOf(warnings)}, {"jobs", ListOf(jobs)}}.dump() + '\n';
}

}  // namespace nccl_exporter::exporter
