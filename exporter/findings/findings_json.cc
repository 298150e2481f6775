// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/findings_json.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

Json RanksJson(const std::vector<FoundRank>& ranks) {
  Json list = Json::array();
  for (const FoundRank& rank : ranks) {
    list.push_back({{"standing", RowIn(kStandings, rank.standing).name},
                    {"rank", rank.rank},
                    {"global_rank", rank.global_rank},
                    {"gpu", rank.gpu_index < 0 ? Json(nullptr) : Json(rank.gpu_index)},
                    {"gpu_uuid", rank.gpu_uuid},
                    {"pid", rank.pid == 0 ? Json(nullptr) : Json(rank.pid)},
                    {"host", rank.host_name},
                    {"pod", rank.pod},
                    {"behind", rank.behind},
                    {"operation", rank.operation},
                    {"since", TimeJson(rank.since_realtime_ns)}});
  }
  return list;
}

// A finding of a newer daemon has no kind here (findings_from_json.cc).
std::string_view KindName(FindingKind kind) {
  return kind == FindingKind::kCount ? "other" : RowIn(kFindingKinds, kind).name;
}

Json FindingJson(const Finding& finding) {
  Json evidence = Json::array();
  for (const auto& [name, value] : finding.evidence)
    evidence.push_back({{"name", name}, {"value", value}});
  Json numbers = Json::object(), collect = Json::array();
  for (const auto& [name, number] : finding.numbers) numbers[name] = RoundedJson(number);
  Json labels = Json::object();
  for (const auto& [name, value] : finding.labels) labels[name] = PrintablePath(value);
  for (const auto& [what, command] : finding.collect)
    collect.push_back({{"what", what}, {"command", command}});
  const std::optional<collector::CommunicatorKey>& of = finding.communicator;
  const std::string job_name = PrintablePath(of ? of->job : finding.job_name);
  return {{"id", finding.id},
          {"kind", KindName(finding.kind)},
          {"severity", RowIn(kSeverities, finding.severity).name},
          {"comm", of ? Json(fmt::format("{:016x}", of->id)) : Json(nullptr)},
          {"comm_name", finding.communicator_name},
          {"ranks", of && of->ranks != 0 ? Json(of->ranks) : Json(nullptr)},
          {"uid", finding.uid},
          {"nccl_job", job_name},
          {"slurm_job_id", job_name},
          {"namespace", PrintablePath(of ? of->name_space : finding.name_space)},
          {"job", finding.job},
          {"labels", std::move(labels)},
          {"since", TimeJson(finding.since_realtime_ns)},
          {"headline", finding.headline},
          {"cost", finding.cost},
          {"culprits", RanksJson(finding.culprits)},
          {"culprits_count", finding.culprits.size() + finding.more_culprits},
          {"waiting", RanksJson(finding.waiting)},
          {"waiting_count", finding.waiting.size() + finding.more_waiting},
          {"evidence", std::move(evidence)},
          {"numbers", std::move(numbers)},
          {"next", finding.next},
          {"collect", std::move(collect)},
          {"runbook", finding.runbook}};
}

}  // namespace

nlohmann::ordered_json RoundedJson(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : value;
}

nlohmann::ordered_json TimeJson(int64_t realtime_ns) {
  if (realtime_ns == 0) return nullptr;
  return static_cast<double>(realtime_ns / 1000000) / 1e3;
}

nlohmann::ordered_json FindingsJson(const Judgement& judgement) {
  Json findings = Json::array();
  for (const Finding& finding : judgement.findings) findings.push_back(FindingJson(finding));
  return findings;
}

nlohmann::ordered_json LookedAtJson(const Judgement& judgement) {
  return {{"seconds", RoundedJson(judgement.seconds)},
          {"communicators", judgement.communicators},
          {"communicators_across_nodes", judgement.across_nodes},
          {"compared_operations", judgement.compared_operations},
          {"learning_seconds", RoundedJson(judgement.learning_seconds)},
          {"findings_left_out", judgement.left_out},
          {"not_remembered", judgement.not_remembered}};
}

}  // namespace nccl_exporter::exporter
