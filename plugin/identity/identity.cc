// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/identity.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "plugin/version.h"

namespace nccl_exporter::plugin {

const char* const kIdentityVariables[] = {"RANK",
                                          "LOCAL_RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_WORLD_SIZE",
                                          "GROUP_RANK",
                                          "SLURM_JOB_ID",
                                          "SLURM_STEP_ID",
                                          "SLURM_PROCID",
                                          "SLURM_LOCALID",
                                          "SLURM_NODEID",
                                          "SLURM_ARRAY_JOB_ID",
                                          "SLURM_ARRAY_TASK_ID",
                                          "SLURM_JOB_NAME",
                                          "SLURM_JOB_USER",
                                          "SLURM_JOB_ACCOUNT",
                                          "SLURM_JOB_PARTITION",
                                          "POD_NAME",
                                          "POD_NAMESPACE",
                                          "POD_UID",
                                          "NODE_NAME",
                                          "CONTAINER_NAME",
                                          "TORCHELASTIC_RUN_ID",
                                          nullptr};

static_assert(sizeof(kIdentityVariables) / sizeof(kIdentityVariables[0]) - 1 <=
              layout::kIdentityPairs);

void CopyText(char* field, size_t size, const char* text) {
  size_t length = text == nullptr ? 0 : strnlen(text, size);
  if (length == size) {
    --length;
    // A byte 10xxxxxx after the cut belongs to a character that began before it.
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  }
  if (length > 0) std::memcpy(field, text, length);
  std::memset(field + length, 0, size - length);
}

void WriteProcessIdentity(layout::SegmentHeader* header, const char* (*get)(const char* name)) {
  header->pid = static_cast<uint64_t>(getpid());
  header->uid = geteuid();
  CopyText(header->plugin_version, sizeof(header->plugin_version), kPluginVersion);
  if (gethostname(header->host_name, sizeof(header->host_name) - 1) != 0)
    header->host_name[0] = '\0';

  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[length > 0 ? length : 0] = '\0';
  const char* slash = std::strrchr(path, '/');
  CopyText(header->executable, sizeof(header->executable), slash != nullptr ? slash + 1 : path);

  uint64_t count = 0;
  for (const char* const* name = kIdentityVariables; *name != nullptr; ++name) {
    const char* value = get(*name);
    if (value == nullptr || value[0] == '\0') continue;
    layout::IdentityPair& pair = header->identity[count++];
    CopyText(pair.key, sizeof(pair.key), *name);
    CopyText(pair.value, sizeof(pair.value), value);
  }
  header->identity_count = count;
}

bool HasMoreRanksThanProcesses(const char* (*get)(const char* name), int ranks, int nodes) {
  const auto is_exceeded = [&](const char* name) {
    const char* text = get(name);
    const long processes = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
    return processes >= 1 && ranks > processes;
  };
  const char* rank = get("RANK");
  // Slurm's number of the step: its number of the job, and that of a node, may be those of another
  // step.
  if (rank == nullptr || rank[0] == '\0') return is_exceeded("SLURM_STEP_NUM_TASKS");
  return is_exceeded("WORLD_SIZE") || (nodes == 1 && is_exceeded("LOCAL_WORLD_SIZE"));
}

LocalRanks FindLocalRanks(const char* (*get)(const char* name), int ranks, int nodes) {
  constexpr uint32_t kUsualGpus = 8;
  constexpr uint32_t kMost = 64;
  uint32_t processes = 0;
  for (const char* name :
       {"LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    const char* text = get(name);
    const long given = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
    if (given < 1 || given > kMost) continue;
    processes = static_cast<uint32_t>(given);
    break;
  }
  const bool is_told = ranks >= 1 && nodes >= 1 && nodes <= ranks;
  const uint32_t per_node =
      is_told ? std::min(static_cast<uint32_t>((ranks - 1) / nodes + 1), kMost) : 0;
  if (processes == 0) return {.on_node = per_node > 1 ? per_node : kUsualGpus, .in_process = 1};
  if (per_node <= processes) return {.on_node = processes, .in_process = 1};
  return {.on_node = per_node, .in_process = (per_node - 1) / processes + 1};
}

}  // namespace nccl_exporter::plugin
