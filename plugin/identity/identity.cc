// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/identity.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "plugin/version.h"
#include "proto/identity_variables.h"
#include "proto/user_labels.h"

namespace nccl_exporter::plugin {

static_assert(kIdentityVariables.size() <= layout::kIdentityPairs);
static_assert(kUserLabelKey.size() + kUserLabelNameBytes < sizeof(layout::IdentityPair::key));
static_assert(kUserLabelValueBytes < sizeof(layout::IdentityPair::value));

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

// A name that fills the field has no NUL there: Linux has names of up to 64 bytes, and nodes may
// differ in the last of them.
void WriteHostName(layout::SegmentHeader* header) {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) name[0] = '\0';
  std::memset(header->host_name, 0, sizeof(header->host_name));
  std::memcpy(header->host_name, name, strnlen(name, sizeof(header->host_name)));
}

void WriteProcessIdentity(layout::SegmentHeader* header, const char* (*get)(const char* name),
                          const char* labels) {
  header->pid = static_cast<uint64_t>(getpid());
  header->uid = geteuid();
  CopyText(header->plugin_version, sizeof(header->plugin_version), kPluginVersion);
  WriteHostName(header);

  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[length > 0 ? length : 0] = '\0';
  const char* slash = std::strrchr(path, '/');
  CopyText(header->executable, sizeof(header->executable), slash != nullptr ? slash + 1 : path);

  // The user's first: no process has all variables, of which the last would find no room.
  uint64_t count = 0;
  if (labels != nullptr) {
    ForEachUserLabel(labels, [&](const UserLabel& label) {
      layout::IdentityPair& pair = header->identity[count++];
      std::memset(static_cast<void*>(&pair), 0, sizeof(pair));
      std::memcpy(pair.key, kUserLabelKey.data(), kUserLabelKey.size());
      std::memcpy(pair.key + kUserLabelKey.size(), label.name.data(), label.name.size());
      std::memcpy(pair.value, label.value.data(), label.value.size());
    });
  }
  for (const IdentityVariable& variable : kIdentityVariables) {
    const char* value = get(variable.name);
    if (value == nullptr || value[0] == '\0' || count == layout::kIdentityPairs) continue;
    layout::IdentityPair& pair = header->identity[count++];
    CopyText(pair.key, sizeof(pair.key), variable.name);
    CopyText(pair.value, sizeof(pair.value), value);
  }
  header->identity_count = count;
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
