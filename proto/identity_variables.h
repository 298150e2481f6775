// SPDX-License-Identifier: Apache-2.0
// Environment variables that the plugin copies into its segment, those that say which job, pod and
// task a process is of, and NCCL's own. The daemon makes labels of these and of no other.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace nccl_exporter {

struct IdentityVariable {
  const char* name;
  std::string_view label;  // of nccl_rank_info, beside those of all series; empty: none of its own
};

// Job, pod and rank of the process are labels of other names (docs/metrics.md). In the order in
// which they get labels while there is room (exporter/series/labels/series_labels.h).
inline constexpr std::array<IdentityVariable, 22> kIdentityVariables{{
    {"RANK", ""},
    {"LOCAL_RANK", ""},
    {"WORLD_SIZE", ""},
    {"SLURM_PROCID", ""},
    {"SLURM_LOCALID", ""},
    {"NCCL_EXPORTER_JOB", ""},
    {"POD_NAME", ""},
    {"POD_NAMESPACE", ""},
    {"NODE_NAME", ""},
    {"CONTAINER_NAME", ""},
    {"SLURM_JOB_ID", "slurm_job_id"},
    {"SLURM_JOB_NAME", "slurm_job_name"},
    {"SLURM_JOB_ACCOUNT", "slurm_job_account"},
    {"SLURM_JOB_PARTITION", "slurm_job_partition"},
    {"SLURM_JOB_USER", "slurm_job_user"},
    {"SLURM_ARRAY_JOB_ID", "slurm_array_job_id"},
    {"SLURM_ARRAY_TASK_ID", "slurm_array_task_id"},
    {"POD_UID", "pod_uid"},
    {"TORCHELASTIC_RUN_ID", "torchelastic_run_id"},
    {"LOCAL_WORLD_SIZE", "local_world_size"},
    {"GROUP_RANK", "group_rank"},
    {"SLURM_STEP_ID", "slurm_step_id"},
}};

// NCCL's own variables begin with kNcclVariable, and those of this system with kOwnVariable. A pair
// has the number and a hash of the former that have a value, "12~1a2b3c4d". Behind it each of them
// has a pair while there is room, in alphabetical order; a name that is cut ends with "~".
inline constexpr std::string_view kNcclVariable = "NCCL_";
inline constexpr std::string_view kOwnVariable = "NCCL_EXPORTER_";
inline constexpr std::string_view kAllNcclVariables = "NCCL_*";

// Distinguishes texts that differ only behind a cut.
constexpr uint32_t AddToHash(uint32_t hash, std::string_view text) {
  for (const char byte : text) hash = hash * 16777619 + static_cast<unsigned char>(byte);
  return hash;
}

constexpr bool IsNcclVariable(std::string_view name) {
  return name.starts_with(kNcclVariable) && !name.starts_with(kOwnVariable);
}

}  // namespace nccl_exporter
