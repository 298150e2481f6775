// SPDX-License-Identifier: Apache-2.0
// Labels of a job's own: NCCL_EXPORTER_LABELS=team=x,run=y. The plugin refuses a list that is not
// one, and stores each label of others as an identity pair; the daemon believes no segment and
// looks at each label again. Pure functions, for any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace nccl_exporter {

// A series has at most 30 labels in Mimir and Cortex.
inline constexpr size_t kMostUserLabels = 8;
// As much as an identity pair of the segment holds, with the key's beginning and a NUL.
inline constexpr size_t kUserLabelNameBytes = 24;
inline constexpr size_t kUserLabelValueBytes = 95;
// The key of a label's pair is this and its name.
inline constexpr std::string_view kUserLabelKey = "label:";

// Names that series, rules, Prometheus and Alertmanager give a meaning: of the catalogue, of
// targets, of alerts. Each has a space on both sides.
inline constexpr std::string_view kReservedLabels =
    " adapter alertname api_version arch bound cause chained_events chained_plugin class cluster "
    "code collective comm comm_name commit communicator container device direction drift_cause "
    "endpoint exported_instance exported_job exported_namespace exported_pod family finding "
    "format function global_rank gpu gpu_uuid group_rank handler host hostname instance job kind "
    "le level limit local_rank local_world_size namespace nccl_job nccl_version nnodes node part "
    "pci_bus_id peer pid plugin_version pod pod_uid process prometheus quantile rank reason "
    "replica revision scope service severity size slurm_array_job_id slurm_array_task_id "
    "slurm_job_account slurm_job_id slurm_job_name slurm_job_partition slurm_job_user "
    "slurm_step_id state timing_reason timing_source torchelastic_run_id uid user variables "
    "version world_size ";
// `name`: one or more letters, digits and underscores.
constexpr bool IsReservedLabel(std::string_view name) {
  size_t at = kReservedLabels.find(name);
  const auto is_whole = [&] {
    return kReservedLabels[at - 1] == ' ' && kReservedLabels[at + name.size()] == ' ';
  };
  while (at != kReservedLabels.npos && !is_whole()) at = kReservedLabels.find(name, at + 1);
  return at != kReservedLabels.npos;
}

struct UserLabel {
  std::string_view name;
  std::string_view value;
};

// Prometheus' syntax; not one of its own, nor one that has a meaning here.
constexpr bool IsUserLabelName(std::string_view name, size_t limit_bytes = kUserLabelNameBytes) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && name.size() <= limit_bytes && is_letter(name.front()) &&
         !name.starts_with("__") &&
         std::ranges::all_of(name,
                             [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); }) &&
         !IsReservedLabel(name);
}

// Calls `use` with each label of a list as far as it is one. False if it is none: a wrong name, no
// value, too long, too many, or a name twice.
template <typename Use>
constexpr bool ForEachUserLabel(std::string_view list, Use use) {
  // As substr(), which needs libstdc++ to throw: the plugin has none.
  const auto part = [](std::string_view text, size_t begin, size_t end) {
    return std::string_view(text.data() + begin, std::min(end, text.size()) - begin);
  };
  std::array<std::string_view, kMostUserLabels> names;
  for (size_t count = 0;; ++count) {
    const std::string_view entry = part(list, 0, list.find(','));
    const size_t equals = entry.find('=');
    if (equals == entry.npos || count == names.size()) return false;
    const UserLabel label{part(entry, 0, equals), part(entry, equals + 1, entry.size())};
    const bool is_new =
        std::find(names.begin(), names.begin() + count, label.name) == names.begin() + count;
    if (!IsUserLabelName(label.name) || !is_new || label.value.empty() ||
        label.value.size() > kUserLabelValueBytes)
      return false;
    names[count] = label.name;
    use(label);
    if (entry.size() == list.size()) return true;
    list.remove_prefix(entry.size() + 1);
  }
}
constexpr bool IsUserLabelList(std::string_view list) {
  return ForEachUserLabel(list, [](const UserLabel&) {});
}

}  // namespace nccl_exporter
