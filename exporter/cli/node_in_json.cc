// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/node_in_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "exporter/findings/findings_json.h"
#include "exporter/series/labels/series_labels.h"
#include "exporter/text/utf8.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

Json Text(std::string_view text) { return ValidUtf8(text, kLabelValueLimitBytes); }

Json OperationsJson(const collector::CommunicatorSnapshot& here) {
  Json list = Json::array();
  for (const collector::InFlightOperation& operation : here.in_flight) {
    const FunctionTraits& traits = TraitsOf(operation.function);
    list.push_back(
        {{"collective", traits.name},
         {"sequence", traits.is_point_to_point ? Json(nullptr) : Json(operation.sequence)},
         {"peer", operation.peer < 0 ? Json(nullptr) : Json(operation.peer)},
         {"bytes", operation.bytes},
         {"start", TimeJson(operation.start_realtime_ns)}});
  }
  return list;
}

Json RankJson(const RankOnNode& rank, const CommunicatorOnNode& of) {
  const collector::CommunicatorSnapshot& here = *rank.communicator;
  const collector::ProcessSnapshot& process = *rank.process;
  const bool is_known = here.completion_is_known;
  return {{"rank", here.rank},
          {"global_rank", Text(GlobalRank(here))},
          {"gpu", here.gpu_index < 0 ? Json(nullptr) : Json(here.gpu_index)},
          {"gpu_uuid", Text(here.gpu_uuid)},
          {"pid", process.pid},
          {"host", Text(process.NodeName())},
          {"alive", process.is_alive},
          {"stopped", process.is_stopped ? Json(*process.is_stopped) : Json(nullptr)},
          {"started_sequence", here.started_sequence},
          {"completed_sequence", is_known ? Json(here.completed_sequence) : Json(nullptr)},
          {"behind", of.max_started - here.started_sequence},
          {"last_progress", TimeJson(here.last_progress_realtime_ns)},
          {"in_flight", is_known ? OperationsJson(here) : Json(nullptr)}};
}

Json CommunicatorJson(const CommunicatorOnNode& of) {
  const collector::CommunicatorSnapshot& any = *of.ranks.front().communicator;
  return {{"comm", fmt::format("{:016x}", of.key.id)},
          {"comm_name", Text(any.name)},
          {"uid", of.key.uid},
          {"nccl_job", Text(of.key.job)},
          {"slurm_job_id", Text(of.ranks.front().process->Identity("SLURM_JOB_ID"))},
          {"namespace", Text(of.key.name_space)},
          {"ranks", any.ranks == 0 ? Json(nullptr) : Json(any.ranks)},
          {"nodes", any.nodes == 0 ? Json(nullptr) : Json(any.nodes)}};
}

Json Judged(const collector::NodeSnapshot& node, const ShownJudgement& shown) {
  return {{"taken", TimeJson(node.taken_realtime_ns)},
          {"judged", shown.Json()},
          {"findings", FindingsJson(shown.judgement)},
          {"looked_at", LookedAtJson(shown.judgement)}};
}

// Texts are valid UTF-8 here. If one were not, `replace` keeps the answer; the default throws.
std::string Dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

std::string TopJson(const collector::NodeSnapshot& node, const NodeHistory& history,
                    const ShownJudgement& shown, TopSort sort) {
  const std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  const TopRanks found = RanksOfTop(communicators, node, history, shown.judgement, sort);
  Json ranks = Json::array();
  for (const TopRank& line : found.ranks) {
    Json row = CommunicatorJson(*line.of);
    row["members"] = Text(line.communicator);
    row.update(RankJson(*line.rank, *line.of));
    row["state"] = line.state;
    const collector::ArrivalCounts& counts = line.arrivals.counts;
    row["arrivals"] = counts.compared == 0
                          ? Json(nullptr)
                          : Json{{"seconds", line.arrivals.seconds},
                                 {"compared", counts.compared},
                                 {"last", counts.last},
                                 {"mean_lateness_seconds", line.MeanLatenessSeconds()}};
    ranks.push_back(std::move(row));
  }
  Json answer = Judged(node, shown);
  answer["ranks"] = std::move(ranks);
  answer["idle_communicators_of_one_rank"] = found.folded;
  return Dumped(answer);
}

std::string InFlightJson(const collector::NodeSnapshot& node, const ShownJudgement& shown) {
  Json communicators = Json::array();
  for (const CommunicatorOnNode& of : CommunicatorsOnNode(node)) {
    Json communicator = CommunicatorJson(of);
    communicator["local_ranks"] = Json::array();
    for (const RankOnNode& rank : of.ranks)
      communicator["local_ranks"].push_back(RankJson(rank, of));
    communicators.push_back(std::move(communicator));
  }
  Json answer = Judged(node, shown);
  answer["communicators"] = std::move(communicators);
  return Dumped(answer);
}

}  // namespace nccl_exporter::exporter
