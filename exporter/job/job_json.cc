// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "exporter/findings/words.h"
#include "exporter/job/job_text.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

// Null where it is not known.
Json TimeOf(double seconds) { return seconds > 0 ? Json(seconds) : Json(); }
Json NumberOf(double number) { return std::isfinite(number) ? Json(number) : Json(); }

Json JsonOf(const Job& job) {
  return {{"cluster", PrintablePath(job.cluster)},
          {"namespace", PrintablePath(job.name_space)},
          {"slurm_job_id", PrintablePath(job.slurm_job_id)},
          {"slurm_job_name", PrintablePath(job.slurm_job_name)},
          {"uid", PrintablePath(job.uid)},
          {"pods", PrintablePath(job.pod_prefix)},
          {"processes", job.processes}};
}

Json JsonOf(const JobAlert& alert) {
  return {{"alertname", PrintablePath(alert.name)},
          {"severity", PrintablePath(alert.severity)},
          {"comm", PrintablePath(alert.comm)},
          {"comm_name", PrintablePath(alert.comm_name)},
          {"rank", PrintablePath(alert.rank)},
          {"global_rank", PrintablePath(alert.global_rank)},
          {"gpu", PrintablePath(alert.gpu)},
          {"hostname", PrintablePath(alert.node)},
          {"since", TimeOf(alert.since)}};
}

Json JsonOf(const JobRank& rank) {
  return {{"rank", PrintablePath(rank.rank)},
          {"global_rank", PrintablePath(rank.global_rank)},
          {"gpu", PrintablePath(rank.gpu)},
          {"hostname", PrintablePath(rank.node)},
          {"instance", PrintablePath(rank.instance)},
          {"pid", PrintablePath(rank.pid)},
          {"pod", PrintablePath(rank.pod)},
          {"ended", rank.is_dead},
          {"stopped", rank.is_stopped},
          {"started", NumberOf(rank.started)},
          {"last_progress", TimeOf(rank.last_progress)},
          {"in_flight", PrintablePath(rank.function)},
          {"in_flight_since", TimeOf(rank.in_flight_since)},
          {"waits", rank.waits},
          {"waits_elsewhere", rank.waits_elsewhere},
          {"behind", NumberOf(rank.behind)},
          {"late_share", rank.late_share ? NumberOf(*rank.late_share) : Json()}};
}

Json JsonOf(const JobCommunicator& communicator) {
  Json ranks = Json::array();
  for (const JobRank& rank : communicator.ranks) ranks.push_back(JsonOf(rank));
  return {{"comm", PrintablePath(communicator.id)},
          {"comm_name", PrintablePath(communicator.name)},
          {"size", NumberOf(communicator.size)},
          {"started", NumberOf(communicator.started)},
          {"last_progress", TimeOf(communicator.last_progress)},
          {"still", communicator.is_still},
          {"ranks", std::move(ranks)}};
}

}  // namespace

std::string JobJson(const JobState& state) {
  Json alerts = Json::array(), communicators = Json::array();
  for (const JobAlert& alert : state.alerts) alerts.push_back(JsonOf(alert));
  for (const JobCommunicator& communicator : state.communicators)
    communicators.push_back(JsonOf(communicator));
  const Json all{{"job", JsonOf(state.job)},
                 {"taken", TimeOf(state.time)},
                 {"nodes", state.nodes},
                 {"ended", state.has_ended},
                 {"waiting_gpus", state.waiting_gpus ? NumberOf(*state.waiting_gpus) : Json()},
                 {"alerts", std::move(alerts)},
                 {"communicators", std::move(communicators)}};
  return all.dump() + '\n';
}

std::string JobsJson(const std::vector<Job>& jobs) {
  Json all = Json::array();
  for (const Job& job : jobs) all.push_back(JsonOf(job));
  return Json{{"jobs", std::move(all)}}.dump() + '\n';
}

}  // namespace nccl_exporter::exporter
