// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/labels/series_labels.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "exporter/exposition/utf8.h"

namespace nccl_exporter::exporter {
namespace {

// Variables whose values are labels of every series of a process. If they are known, no relabelling
// is needed.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kJobLabels{{
    {"SLURM_JOB_ID", "slurm_job_id"},
    {"POD_NAMESPACE", "namespace"},
    {"POD_NAME", "pod"},
    {"CONTAINER_NAME", "container"},
}};

// Variables that give the labels global_rank and local_rank.
constexpr std::array<std::string_view, 4> kRankVariables{"RANK", "SLURM_PROCID", "LOCAL_RANK",
                                                         "SLURM_LOCALID"};

// Names with a meaning in Prometheus or in scrape configurations, and those of
// CommunicatorLabels().
constexpr std::array<std::string_view, 11> kReservedLabels{
    "le",        "quantile", "job",         "instance", "type", "comm",
    "comm_name", "rank",     "global_rank", "gpu",      "uid"};

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
  for (const auto& [variable, label] : kJobLabels) {
    AppendKnown(labels, label, process.Identity(variable));
  }
}

std::string HexText(uint64_t id) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(id));
  return text;
}

// 22907 becomes 2.29.7, the spelling of NCCL's own log; empty if the version is unknown.
std::string NcclVersionText(int version) {
  if (version <= 0) return "";
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

// The first known of two variables. Empty if the variables number processes, because readers would
// take it for a rank.
std::string_view RankNumber(const collector::ProcessSnapshot& process, std::string_view variable,
                            std::string_view fallback) {
  if (process.rank_numbers_process) return "";
  const std::string& value = process.Identity(variable);
  return value.empty() ? process.Identity(fallback) : value;
}

// The label for an identity variable without a row in kJobLabels: its name in lower case, or empty
// if that is no valid label name.
std::string LowerCaseLabel(std::string_view variable) {
  std::string name;
  for (const char character : variable) {
    const bool is_upper = character >= 'A' && character <= 'Z';
    const bool is_lower = character >= 'a' && character <= 'z';
    const bool is_digit = character >= '0' && character <= '9';
    if (!is_upper && !is_lower && character != '_' && (!is_digit || name.empty())) return "";
    name += is_upper ? static_cast<char>(character - 'A' + 'a') : character;
  }
  return name.starts_with("__") ? "" : name;
}

bool HasOwnLabel(std::string_view variable) {
  return std::ranges::any_of(kJobLabels, [&](const auto& row) { return row.first == variable; }) ||
         std::ranges::find(kRankVariables, variable) != kRankVariables.end();
}

bool IsTaken(const Labels& labels, std::string_view name) {
  return std::ranges::any_of(labels, [&](const Label& label) { return label.name == name; }) ||
         std::ranges::any_of(kJobLabels, [&](const auto& row) { return row.second == name; }) ||
         std::ranges::find(kReservedLabels, name) != kReservedLabels.end();
}

}  // namespace

Labels CommunicatorLabels(const collector::ProcessSnapshot& process,
                          const collector::CommunicatorSnapshot& communicator) {
  Labels labels;
  Append(labels, "comm", HexText(communicator.id));
  Append(labels, "comm_name", communicator.name);
  Append(labels, "rank", std::to_string(communicator.rank));
  AppendKnown(labels, "global_rank", GlobalRank(process));
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

std::string_view GlobalRank(const collector::ProcessSnapshot& process) {
  return RankNumber(process, "RANK", "SLURM_PROCID");
}

std::string_view LocalRank(const collector::ProcessSnapshot& process) {
  return RankNumber(process, "LOCAL_RANK", "SLURM_LOCALID");
}

Labels ProcessLabels(const collector::ProcessSnapshot& process) {
  Labels labels;
  Append(labels, "pid", std::to_string(process.pid));
  AppendKnown(labels, "global_rank", GlobalRank(process));
  AppendJobLabels(labels, process);
  return labels;
}

Labels RankInfoLabels(const collector::ProcessSnapshot& process,
                      const collector::CommunicatorSnapshot& communicator) {
  Labels labels;
  Append(labels, "gpu_uuid", communicator.gpu_uuid);
  Append(labels, "pci_bus_id", communicator.pci_bus_id);
  Append(labels, "local_rank", LocalRank(process));
  Append(labels, "hostname", process.host_name);
  Append(labels, "pid", std::to_string(process.pid));
  Append(labels, "timing_source", NameOf(communicator.timing_source));
  Append(labels, "timing_reason", NameOf(communicator.timing_reason));
  Append(labels, "sampling", NameOf(communicator.sampling_state));
  Append(labels, "sampling_reason", NameOf(communicator.sampling_reason));
  Append(labels, "plugin_version", process.plugin_version);
  for (const auto& [variable, value] : process.identity) {
    if (HasOwnLabel(variable) || value.empty()) continue;
    const std::string name = LowerCaseLabel(variable);
    if (!name.empty() && !IsTaken(labels, name)) Append(labels, name, value);
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
