// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/node_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "exporter/findings/findings_json.h"
#include "exporter/ledger/watched_directories.h"
#include "exporter/text/version.h"
#include "exporter/web/bounded_list.h"
#include "exporter/web/communicator_json.h"
#include "exporter/web/directory_states.h"
#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

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

// The process is gone and had finalized all of its communicators; one that had not was killed.
bool HasEnded(const collector::ProcessSnapshot& process) {
  return !process.is_alive &&
         std::ranges::all_of(process.communicators, &collector::CommunicatorSnapshot::is_closed);
}

Json ProcessJson(const collector::ProcessSnapshot& process) {
  return {{"pid", process.pid},
          {"uid", process.uid},
          {"alive", process.is_alive},
          {"stopped", OrNull(process.is_stopped)},
          {"ended", HasEnded(process)},
          {"host", TextJson(process.NodeName())},
          {"executable", TextJson(process.executable)},
          {"plugin_version", TextJson(process.plugin_version)},
          {"start", TimeJson(process.start_realtime_ns)},
          {"global_rank", TextJson(process.numbers.GlobalText())},
          {"local_rank", TextJson(process.numbers.LocalText())},
          {"nccl_job", TextJson(process.JobName())},
          {"slurm_job_id", TextJson(process.Identity("SLURM_JOB_ID"))},
          {"namespace", TextJson(process.Identity("POD_NAMESPACE"))},
          {"pod", TextJson(process.Identity("POD_NAME"))},
          {"container", TextJson(process.Identity("CONTAINER_NAME"))},
          {"communicators", process.communicators.size()},
          {"losses", LossesOf(process.losses)}};
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
                        {"detail", TextJson(trouble.detail)},
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
              {"node", TextJson(facts.node_name)},
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
                    {"schema", kFindingsSchema},
                    {"exporter", ExporterJson(facts)},
                    {"node", TextJson(facts.node_name)},
                    {"taken", TimeJson(node.taken_realtime_ns)},
                    {"findings", FindingsJson(judgement)},
                    {"looked_at", LookedAtJson(judgement)},
                    {"watches", WatchesJson(facts.segment_directories)}};
  return Dump(answer) + '\n';
}

}  // namespace nccl_exporter::exporter
