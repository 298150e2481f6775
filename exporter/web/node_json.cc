// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/node_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "exporter/findings/findings_json.h"
#include "exporter/findings/rank_view.h"
#include "exporter/ledger/watched_directories.h"
#include "exporter/series/labels/series_labels.h"
#include "exporter/text/utf8.h"
#include "exporter/text/version.h"
#include "exporter/web/bounded_list.h"
#include "exporter/web/directory_states.h"
#include "exporter/web/waiting_json.h"
#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

// Text of another process. Its length is limited, so that one name cannot make the answer large.
Json Text(std::string_view text) { return ValidUtf8(text, kLabelValueLimitBytes); }

Json LossesOf(const std::array<uint64_t, kLossCount>& counts) {
  Json losses = Json::array();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    losses.push_back({{"kind", NameOf(kLosses[i].kind)},
                      {"reason", kLosses[i].reason},
                      {"meaning", kLosses[i].meaning},
                      {"count", counts[i]}});
  }
  return losses;
}

Json StoppedJson(const collector::ProcessSnapshot& process) {
  return process.is_stopped ? Json(*process.is_stopped) : Json(nullptr);
}

// The process is gone and had finalized all of its communicators; one that had not was killed.
bool HasEnded(const collector::ProcessSnapshot& process) {
  return !process.is_alive &&
         std::ranges::all_of(process.communicators, &collector::CommunicatorSnapshot::is_closed);
}

Json ProcessJson(const collector::ProcessSnapshot& process) {
  return {{"pid", process.pid},
          {"uid", process.uid},
          {"alive", process.is_alive},
          {"stopped", StoppedJson(process)},
          {"ended", HasEnded(process)},
          {"host", Text(process.NodeName())},
          {"executable", Text(process.executable)},
          {"plugin_version", Text(process.plugin_version)},
          {"start", TimeJson(process.start_realtime_ns)},
          {"global_rank", Text(GlobalRank(process))},
          {"local_rank", Text(LocalRank(process))},
          {"nccl_job", Text(process.JobName())},
          {"slurm_job_id", Text(process.Identity("SLURM_JOB_ID"))},
          {"namespace", Text(process.Identity("POD_NAMESPACE"))},
          {"pod", Text(process.Identity("POD_NAME"))},
          {"container", Text(process.Identity("CONTAINER_NAME"))},
          {"communicators", process.communicators.size()},
          {"losses", LossesOf(process.losses)}};
}

Json InFlightJson(const collector::CommunicatorSnapshot& communicator) {
  Json list = Json::array();
  for (const collector::InFlightOperation& operation : communicator.in_flight) {
    if (list.size() == kListedInFlight) break;
    const bool is_point_to_point = TraitsOf(operation.function).is_point_to_point;
    list.push_back({{"collective", TraitsOf(operation.function).name},
                    {"sequence", is_point_to_point ? Json(nullptr) : Json(operation.sequence)},
                    {"peer", operation.peer < 0 ? Json(nullptr) : Json(operation.peer)},
                    {"bytes", operation.bytes},
                    {"start", TimeJson(operation.start_realtime_ns)}});
  }
  return list;
}

Json ArrivalsJson(const RankView& view) {
  if (!view.rank->communicator->arrivals) return nullptr;
  return {{"late", view.is_late},
          {"seconds", RoundedJson(view.arrivals.seconds)},
          {"compared", view.arrivals.counts.compared},
          {"last", view.arrivals.counts.last},
          {"mean_lateness_seconds", RoundedJson(view.MeanLatenessSeconds())}};
}

constexpr double kMostBytes = 1ull << 63;  // more take a forged segment

Json NetworkDirectionJson(NetworkDirection direction, const NetworkWindow& recent) {
  const collector::NetworkDirectionCounts& here =
      recent.counts.directions[static_cast<size_t>(direction)];
  const std::optional<double> all_bytes = recent.AllBytes(direction);
  Json waits = Json::object();
  for (const CodeRow<NetworkState>& row : kNetworkStates) {
    if (const std::optional<uint64_t> wait_ns = here.WaitNs(direction, row.id))
      waits[std::string(row.name)] = RoundedJson(static_cast<double>(*wait_ns) / 1e9);
  }
  return {{"operations", here.operations},
          {"bytes", here.bytes},
          {"all_bytes", all_bytes ? Json(static_cast<uint64_t>(std::min(*all_bytes, kMostBytes)))
                                  : Json(nullptr)},
          {"wait_seconds", std::move(waits)}};
}

Json NetworkJson(const RankView& view) {
  const collector::CommunicatorSnapshot& here = *view.rank->communicator;
  if (!here.network) return nullptr;
  return {{"timed_share", RoundedJson(static_cast<double>(here.network_share_ppm) / kWholeDutyPpm)},
          {"seconds", RoundedJson(view.network.seconds)},
          {"send", NetworkDirectionJson(NetworkDirection::kSend, view.network)},
          {"recv", NetworkDirectionJson(NetworkDirection::kRecv, view.network)}};
}

Json RankJson(const RankView& view) {
  const RankOnNode& rank = *view.rank;
  const collector::CommunicatorSnapshot& here = *rank.communicator;
  const bool is_known = here.completion_is_known;
  return {{"rank", here.rank},
          {"gpu", here.gpu_index < 0 ? Json(nullptr) : Json(here.gpu_index)},
          {"gpu_uuid", Text(here.gpu_uuid)},
          {"pid", rank.process->pid},
          {"host", Text(rank.process->NodeName())},
          {"alive", rank.process->is_alive},
          {"stopped", StoppedJson(*rank.process)},
          {"global_rank", Text(GlobalRank(*rank.communicator))},
          {"started_sequence", here.started_sequence},
          {"completed_sequence", is_known ? Json(here.completed_sequence) : Json(nullptr)},
          {"behind", view.behind},
          {"in_flight_count", is_known ? Json(here.in_flight.size()) : Json(nullptr)},
          {"in_flight", is_known ? InFlightJson(here) : Json::array()},
          {"unseen_operations", here.unseen_operations},
          {"last_progress", TimeJson(here.last_progress_realtime_ns)},
          {"timing_source", NameOf(here.timing_source)},
          {"timing_reason", NameOf(here.timing_reason)},
          {"drift_cause", here.drift_cause == DriftCause::kNone
                              ? Json(nullptr)
                              : Json(RowIn(kDriftCauses, here.drift_cause).name)},
          {"probation_launches", here.probation_launches},
          {"arrivals", ArrivalsJson(view)},
          {"network", NetworkJson(view)}};
}

// Arrays as long as history.times, and the heat map as triples of step, bin and operations.
Json HistoryJson(const collector::CommunicatorKey& key, Function function,
                 const NodeHistory& history) {
  Json operations = Json::array(), bytes = Json::array(), duration = Json::array(),
       bandwidth = Json::array();
  Json heat = Json::array();
  for (size_t step = 0; step < history.steps(); ++step) {
    static const ActivityDelta kNothing;
    const ActivityDelta* const found = history.At(step, key, function);
    const ActivityDelta& activity = found == nullptr ? kNothing : *found;
    operations.push_back(
        RoundedJson(static_cast<double>(activity.operations) / history.Seconds(step)));
    bytes.push_back(RoundedJson(static_cast<double>(activity.bytes) / history.Seconds(step)));
    duration.push_back(RoundedJson(activity.MeanDurationSeconds()));
    bandwidth.push_back(RoundedJson(activity.BusBandwidth()));
    for (const auto& [bin, count] : activity.durations) heat.push_back({step, bin, count});
  }
  return {{"operations_per_second", std::move(operations)},
          {"bytes_per_second", std::move(bytes)},
          {"duration_seconds", std::move(duration)},
          {"bus_bytes_per_second", std::move(bandwidth)},
          {"heat", std::move(heat)}};
}

Json CollectiveJson(const CommunicatorOnNode& of, Function function, const NodeHistory& history,
                    const RanksWindow& recent_ranks) {
  collector::SizeClassSnapshot total;
  size_t ranks = 0;
  for (const RankOnNode& rank : of.ranks) {
    if (rank.communicator->functions.IsInUse(static_cast<size_t>(function))) ++ranks;
    for (const collector::SizeClassSnapshot& size :
         rank.communicator->functions[static_cast<size_t>(function)].sizes) {
      total += size;
    }
  }
  if (total.operations == 0) return nullptr;
  const HistoryWindow recent = history.Recent(of.key, function, kRecentSeconds);
  const MeanTimes means = MeanTimesOf(of, function, recent_ranks);
  const auto rate = [&](uint64_t count) {
    return RoundedJson(static_cast<double>(count) / recent.seconds);
  };
  return {{"collective", TraitsOf(function).name},
          {"used_by", ranks},
          {"operations", total.operations},
          {"bytes", total.bytes},
          {"timed_operations", total.timed_operations},
          {"busy_seconds", RoundedJson(static_cast<double>(total.busy_ns) / 1e9)},
          {"recent",
           {{"seconds", RoundedJson(recent.seconds)},
            {"operations_per_second", rate(recent.activity.operations)},
            {"bytes_per_second", rate(recent.activity.bytes)},
            {"duration_seconds", RoundedJson(recent.activity.MeanDurationSeconds())},
            {"transfer_seconds", RoundedJson(means.transfer)},
            {"waiting_seconds", RoundedJson(means.waiting)},
            {"bus_bytes_per_second", RoundedJson(recent.activity.BusBandwidth())}}},
          {"history", HistoryJson(of.key, function, history)}};
}

// Ranks that must be on this node and are not. Known only if all ranks of the communicator are on
// this node.
Json MissingJson(const CommunicatorOnNode& of) {
  constexpr size_t kMostNamed = 64;  // `ranks` may be any number: another process wrote it
  const collector::CommunicatorSnapshot& any = *of.ranks.front().communicator;
  if (any.nodes != 1 || any.ranks == 0) return nullptr;
  std::set<uint64_t> here;
  for (const RankOnNode& rank : of.ranks) here.insert(rank.communicator->rank);
  Json missing = Json::array();
  for (uint64_t rank = 0; rank < any.ranks && missing.size() < kMostNamed; ++rank) {
    if (!here.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

Json CommunicatorJson(const CommunicatorOnNode& of, const NodeHistory& history,
                      const RanksWindow& recent_ranks, const Judgement& judgement) {
  const RankOnNode& any = of.ranks.front();
  Json ranks = Json::array(), collectives = Json::array();
  for (const RankOnNode& rank : of.ranks)
    ranks.push_back(RankJson(RankViewOf(of, rank, 0, history, judgement)));
  for (size_t i = 0; i < kFunctionCount; ++i) {
    Json collective = CollectiveJson(of, static_cast<Function>(i), history, recent_ranks);
    if (!collective.is_null()) collectives.push_back(std::move(collective));
  }
  return {{"comm", fmt::format("{:016x}", of.key.id)},
          {"comm_name", Text(any.communicator->name)},
          {"uid", of.key.uid},
          {"nccl_job", Text(of.key.job)},
          {"slurm_job_id", Text(any.process->Identity("SLURM_JOB_ID"))},
          {"namespace", Text(of.key.name_space)},
          {"ranks", any.communicator->ranks == 0 ? Json(nullptr) : Json(any.communicator->ranks)},
          {"nodes", any.communicator->nodes == 0 ? Json(nullptr) : Json(any.communicator->nodes)},
          {"missing_ranks", MissingJson(of)},
          {"local_ranks", std::move(ranks)},
          {"waiting", WaitingJson(of, history)},
          {"collectives", std::move(collectives)}};
}

template <typename Id>
Json NamedCounts(const CodeTable<Id>& rows, const std::array<uint64_t, kCountOf<Id>>& counts) {
  Json object = Json::object();
  for (const CodeRow<Id>& row : rows)
    object[std::string(row.name)] = counts[static_cast<size_t>(row.id)];
  return object;
}

// A directory and the longest name of a file: a name that is cut cannot be removed.
constexpr size_t kPathLimitBytes = 512;

// The latest file per cause and owner.
Json SegmentTroubles(const collector::NodeSnapshot& node) {
  Json troubles = Json::array();
  for (const collector::SegmentTrouble& trouble : node.segment_troubles) {
    troubles.push_back({{"reason", NameOf(trouble.error)},
                        {"count", trouble.count},
                        {"present", trouble.present},
                        {"uid", trouble.file_uid},
                        {"file", ValidUtf8(trouble.file, kPathLimitBytes)},
                        {"detail", Text(trouble.detail)},
                        {"time", TimeJson(trouble.realtime_ns)}});
  }
  return troubles;
}

Json DirectoriesJson(const std::vector<std::string>& paths) {
  Json directories = Json::array();
  for (const WatchedDirectory& directory : DirectoryStates(paths)) {
    directories.push_back(
        {{"path", directory.path}, {"state", directory.state}, {"detail", directory.detail}});
  }
  return directories;
}

Json ExporterJson(const DaemonFacts& facts) {
  return {{"version", kVersion},
          {"commit", facts.commit},
          {"start", TimeJson(facts.start_realtime_ns)}};
}

Json WatchesJson(const std::vector<std::string>& paths) {
  const WatchedDirectories watched = WatchedDirectoriesOf(paths);
  return {{"boot_id", watched.boot_id}, {"directories", watched.ids}};
}

Json HistoryFrame(const NodeHistory& history) {
  Json times = Json::array();
  for (size_t step = 0; step < history.steps(); ++step)
    times.push_back(TimeJson(history.EndRealtimeNs(step)));
  return {{"step_seconds", kHistoryStep.count()},
          {"steps", kHistorySteps},
          {"bins", kDurationBins},
          {"first_bin_seconds", std::exp2(DurationBuckets::kFirstBound / 8.0)},
          {"bins_per_octave", 8 / kBucketsPerBin},
          {"left_out", history.left_out()},
          {"times", std::move(times)}};
}

}  // namespace

std::string NodeFields(const collector::NodeSnapshot& node, const NodeHistory& history,
                       const Judgement& judgement, const DaemonFacts& facts, const Json& judged) {
  const RanksWindow recent_ranks = history.RecentRanks(kRecentSeconds);
  std::array<uint64_t, kLossCount> losses{};
  std::set<collector::CommunicatorKey> found;
  for (const Finding& finding : judgement.findings)
    if (finding.communicator) found.insert(*finding.communicator);
  BoundedList processes, communicators;
  for (const collector::ProcessSnapshot& process : node.processes) {
    for (size_t i = 0; i < losses.size(); ++i) losses[i] += process.losses[i];
    const bool is_killed = !process.is_alive && !HasEnded(process);
    processes.Add(process.uid, is_killed || process.is_stopped.value_or(false),
                  [&process] { return ProcessJson(process); });
  }
  const std::vector<CommunicatorOnNode> in_use = CommunicatorsOnNode(node);
  for (const CommunicatorOnNode& of : in_use) {
    communicators.Add(of.key.uid, found.contains(of.key),
                      [&] { return CommunicatorJson(of, history, recent_ranks, judgement); });
  }
  Json fields{{"api", "v1"},
              {"exporter", ExporterJson(facts)},
              {"node", Text(facts.node_name)},
              {"taken", TimeJson(node.taken_realtime_ns)},
              {"links", {{"metrics", facts.telemetry_path}, {"in_flight", kInFlightPath}}},
              {"findings", FindingsJson(judgement)},
              {"looked_at", LookedAtJson(judgement)},
              {"directories", DirectoriesJson(facts.segment_directories)},
              {"segments",
               {{"live", node.segments.live},
                {"starting", node.segments.starting},
                {"exited", node.segments.exited},
                {"unusable", node.segments.unusable}}},
              {"segment_errors", NamedCounts(collector::kSegmentErrors, node.segment_errors)},
              {"segment_troubles", SegmentTroubles(node)},
              {"losses", LossesOf(losses)},
              {"uncompared_operations",
               NamedCounts(collector::kUncomparedReasons, node.uncompared_operations)},
              {"history", HistoryFrame(history)}};
  if (!judged.is_null()) fields["judged"] = judged;
  std::string answer = Dump(fields);
  constexpr size_t kEndBytes = 256;  // of what follows the lists
  // Each list can use what is left, processes at most half of it.
  const auto left = [&] {
    return facts.node_answer_bytes - std::min(facts.node_answer_bytes, answer.size());
  };
  answer.reserve(facts.node_answer_bytes + kEndBytes);  // it is not copied as it grows
  answer.back() = ',';
  answer += "\"processes\":";
  processes.Write(left() / 2, answer);
  answer += ",\"communicators\":";
  communicators.Write(left(), answer);
  answer += ",\"left_out\":" + Dump({{"processes", processes.left_out()},
                                     {"communicators", communicators.left_out()}});
  answer += "}\n";
  return answer;
}

std::string NodeJson(const collector::NodeSnapshot& node, const NodeJudge& judge,
                     const DaemonFacts& facts) {
  return NodeFields(node, judge.history(), judge.Judge(node), facts, nullptr);
}

std::string FindingsAnswer(const collector::NodeSnapshot& node, const NodeJudge& judge,
                           const DaemonFacts& facts) {
  const Judgement judgement = judge.Judge(node);
  const Json answer{{"api", "v1"},
                    {"exporter", ExporterJson(facts)},
                    {"node", Text(facts.node_name)},
                    {"taken", TimeJson(node.taken_realtime_ns)},
                    {"findings", FindingsJson(judgement)},
                    {"looked_at", LookedAtJson(judgement)},
                    {"watches", WatchesJson(facts.segment_directories)}};
  return Dump(answer) + '\n';
}

}  // namespace nccl_exporter::exporter
