// SPDX-License-Identifier: Apache-2.0
#include "collector/labels/label_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "proto/user_labels.h"

namespace nccl_exporter::collector {
namespace {

using Json = nlohmann::json;

constexpr const char* kKinds =
    "\"match\" must be {\"pid\": ..., \"gpu_uuid\": ...}, {\"slurm_job_id\": ...}, {\"namespace\": "
    "..., \"pod\": ...}, {\"uid\": ...}, {\"gpu_uuid\": ...} or {\"node\": ...}";

[[noreturn]] void Refuse(const std::string& what) { throw std::runtime_error(what); }

// Identifiers may be written as numbers.
std::string TextOf(const Json& value, const std::string& name) {
  const std::string text = value.is_number_unsigned() ? std::to_string(value.get<uint64_t>())
                           : value.is_string()        ? value.get<std::string>()
                                                      : "";
  if (text.empty()) Refuse('"' + name + "\" is neither a text nor a number");
  return text;
}

LabelTarget TargetOf(const Json& match) {
  if (!match.is_object()) Refuse(kKinds);
  if (match.size() == 2 && match.contains("namespace") && match.contains("pod"))
    return {LabelMatch::kPod,
            TextOf(match["namespace"], "namespace") + '/' + TextOf(match["pod"], "pod")};
  if (match.size() == 2 && match.contains("pid") && match.contains("gpu_uuid"))
    return {LabelMatch::kProcess,
            TextOf(match["pid"], "pid") + '/' + TextOf(match["gpu_uuid"], "gpu_uuid")};
  if (match.size() != 1) Refuse(kKinds);
  const std::pair<const char*, LabelMatch> kinds[] = {{"slurm_job_id", LabelMatch::kSlurmJob},
                                                      {"uid", LabelMatch::kUser},
                                                      {"gpu_uuid", LabelMatch::kGpu},
                                                      {"node", LabelMatch::kNode}};
  for (const auto& [name, kind] : kinds) {
    if (match.contains(name)) return {kind, TextOf(match[name], name)};
  }
  Refuse(kKinds);
}

SiteLabels LabelsOfRule(const Json& labels) {
  if (!labels.is_object() || labels.empty()) Refuse("\"labels\" is no object with labels");
  if (labels.size() > kMostUserLabels)
    Refuse("more than " + std::to_string(kMostUserLabels) + " labels");
  SiteLabels list;
  for (const auto& [name, value] : labels.items()) {
    if (!IsUserLabelName(name, kLabelBytes))
      Refuse("label \"" + name + "\" is reserved or no name");
    if (!value.is_string() || value.get<std::string>().empty() ||
        value.get<std::string>().size() > kLabelBytes)
      Refuse("label \"" + name + "\" is no text of 1 to " + std::to_string(kLabelBytes) + " bytes");
    list.emplace_back(name, value.get<std::string>());
  }
  return list;
}

void AddRule(const Json& rule, LabelRules& rules) {
  if (!rule.is_object() || rule.size() != 2 || !rule.contains("match") || !rule.contains("labels"))
    Refuse("a rule must be {\"match\": {...}, \"labels\": {...}}");
  const bool is_new = rules.emplace(TargetOf(rule["match"]), LabelsOfRule(rule["labels"])).second;
  if (!is_new) Refuse("two rules with the same \"match\"");
}

}  // namespace

LabelRules ParseLabelRules(std::string_view text) {
  const Json file = Json::parse(text, nullptr, false);
  if (file.is_discarded()) Refuse("is no JSON");
  LabelRules rules;
  if (!file.is_array()) return AddRule(file, rules), rules;
  for (const Json& rule : file) AddRule(rule, rules);
  return rules;
}

void AddLabels(const SiteLabels& more, SiteLabels& labels) {
  for (const auto& label : more) {
    if (std::ranges::count(labels, label.first, &SiteLabels::value_type::first) == 0)
      labels.push_back(label);
  }
}

SiteLabels LabelsOf(const ProcessSnapshot& process, const LabelRules& rules) {
  if (rules.empty()) return {};
  std::set<LabelTarget> targets{
      {LabelMatch::kSlurmJob, process.Identity("SLURM_JOB_ID")},
      {LabelMatch::kPod, process.Identity("POD_NAMESPACE") + '/' + process.Identity("POD_NAME")},
      {LabelMatch::kUser, std::to_string(process.uid)},
      {LabelMatch::kNode, process.NodeName()}};
  for (const CommunicatorSnapshot& communicator : process.communicators) {
    targets.insert({LabelMatch::kGpu, communicator.gpu_uuid});
    targets.insert(
        {LabelMatch::kProcess, std::to_string(process.pid) + '/' + communicator.gpu_uuid});
  }
  SiteLabels labels;
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    const auto rule = rules.find(*target);
    if (rule == rules.end()) continue;
    AddLabels(rule->second, labels);
  }
  labels.resize(std::min(labels.size(), kMostUserLabels));
  return labels;
}

}  // namespace nccl_exporter::collector
