// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/labels/series_labels.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "exporter/text/utf8.h"
#include "exporter/text/version.h"
#include "proto/identity_variables.h"
#include "proto/user_labels.h"

namespace nccl_exporter::exporter {
namespace {

// Variables whose values are labels of every series of a process. If they are known, no relabelling
// is needed.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kJobLabels{{
    {"POD_NAMESPACE", "namespace"},
    {"POD_NAME", "pod"},
    {"CONTAINER_NAME", "container"},
}};

void Append(Labels& labels, std::string_view name, std::string_view value) {
  labels.push_back({std::string(name), ValidUtf8(value, kLabelValueLimitBytes)});
}

void AppendKnown(Labels& labels, std::string_view name, std::string_view value) {
  if (!value.empty()) Append(labels, name, value);
}

// `uid` comes first: it is the owner of the file. A process can choose the values of all other
// labels.
void AppendJobLabels(Labels& labels, const collector::ProcessSnapshot& process) {
  Append(labels, "uid", std::to_string(process.uid));
  AppendKnown(labels, "nccl_job", process.JobName());
  for (const auto& [variable, label] : kJobLabels) {
    AppendKnown(labels, label, process.Identity(variable));
  }
  for (const auto& [name, value] : process.site_labels) Append(labels, name, value);
}

// Events that a chained plugin gets, of those that it asks for.
std::string_view ChainedEventsOf(const collector::ChainedPlugin& chained) {
  if (chained.is_over_budget) return "none_over_budget";
  return chained.lacks_kernel_events ? "no_kernel_events" : "all";
}

}  // namespace

Labels UserLabels(const collector::ProcessSnapshot& process) {
  Labels labels;
  const auto& of_site = process.site_labels;
  for (const auto& [key, value] : process.identity) {
    const bool is_full = labels.size() + of_site.size() == kMostUserLabels;
    if (!key.starts_with(kUserLabelKey) || is_full) continue;
    const std::string_view name = std::string_view(key).substr(kUserLabelKey.size());
    const bool is_sites =
        std::ranges::any_of(of_site, [&](const auto& label) { return label.first == name; });
    if (IsUserLabelName(name) && !is_sites) AppendKnown(labels, name, value);
  }
  return labels;
}

Labels CommunicatorLabels(const collector::ProcessSnapshot& process,
                          const collector::CommunicatorSnapshot& communicator) {
  Labels labels;
  Append(labels, "comm", collector::HexText(communicator.id));
  Append(labels, "comm_name", communicator.name);
  Append(labels, "rank", std::to_string(communicator.rank));
  AppendKnown(labels, "global_rank", communicator.numbers.GlobalText());
  Append(labels, "gpu", communicator.gpu_index < 0 ? "" : std::to_string(communicator.gpu_index));
  AppendJobLabels(labels, process);
  return labels;
}

Labels OtherCommunicatorLabels(const collector::ProcessSnapshot& process) {
  Labels labels;
  Append(labels, "comm", kOtherCommunicator);
  Append(labels, "comm_name", "");
  Append(labels, "rank", "");
  Append(labels, "gpu", "");
  AppendJobLabels(labels, process);
  return labels;
}

Labels ProcessLabels(const collector::ProcessSnapshot& process) {
  Labels labels;
  Append(labels, "pid", std::to_string(process.pid));
  AppendKnown(labels, "global_rank", process.numbers.GlobalText());
  AppendJobLabels(labels, process);
  return labels;
}

Labels EnvironmentLabels(const collector::ProcessSnapshot& process) {
  std::string text;
  for (const auto& [name, value] : process.identity) {
    if (!IsNcclVariable(name)) continue;
    const std::string variable = (text.empty() ? "" : " ") + ValidUtf8(name + "=" + value);
    if (text.size() + variable.size() > kNcclVariablesLimitBytes) break;
    text += variable;
  }
  if (text.empty()) return {};
  Labels labels;
  Append(labels, "hostname", process.NodeName());
  labels.push_back({"variables", std::move(text)});
  return labels;
}

Labels RankNameLabels(const collector::ProcessSnapshot& process,
                      const collector::CommunicatorSnapshot& communicator) {
  Labels labels;
  Append(labels, "gpu_uuid", communicator.gpu_uuid);
  Append(labels, "hostname", process.NodeName());
  Append(labels, "pid", std::to_string(process.pid));
  Append(labels, "timing_source", NameOf(communicator.timing_source));
  return labels;
}

Labels RankInfoLabels(const collector::ProcessSnapshot& process,
                      const collector::CommunicatorSnapshot& communicator, bool with_user_labels) {
  Labels labels;
  Append(labels, "gpu_uuid", communicator.gpu_uuid);
  Append(labels, "pci_bus_id", communicator.pci_bus_id);
  Append(labels, "local_rank", communicator.numbers.LocalText());
  Append(labels, "hostname", process.NodeName());
  Append(labels, "pid", std::to_string(process.pid));
  Append(labels, "timing_source", NameOf(communicator.timing_source));
  Append(labels, "timing_reason", NameOf(communicator.timing_reason));
  Append(labels, "plugin_version", process.plugin_version);
  constexpr size_t kAddedLater = 3;  // name, job, instance
  Labels of_user = UserLabels(process);
  // Where the series have them, they take the same room.
  const size_t others = with_user_labels ? 0 : of_user.size();
  const size_t room =
      kRankInfoLabelLimit - kAddedLater - CommunicatorLabels(process, communicator).size() - others;
  if (with_user_labels) std::ranges::move(of_user, std::back_inserter(labels));
  if (labels.size() < room) AppendKnown(labels, "adapter", communicator.adapter);
  if (process.chained && labels.size() + 1 < room) {
    Append(labels, "chained_plugin", process.chained->name);
    Append(labels, "chained_events", ChainedEventsOf(*process.chained));
  }
  if (communicator.numbers.world_size != 0 && labels.size() < room)
    Append(labels, "world_size", std::to_string(communicator.numbers.world_size));
  for (const IdentityVariable& variable : kIdentityVariables) {
    if (!variable.label.empty() && labels.size() < room)
      AppendKnown(labels, variable.label, process.Identity(variable.name));
  }
  return labels;
}

Labels CommunicatorInfoLabels(const collector::CommunicatorSnapshot& communicator) {
  Labels labels;
  Append(labels, "nnodes", communicator.nodes == 0 ? "" : std::to_string(communicator.nodes));
  Append(labels, "nccl_version", NcclVersionText(communicator.nccl_version));
  Append(labels, "api_version", std::to_string(communicator.api_version));
  return labels;
}

}  // namespace nccl_exporter::exporter
