// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/identity.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "proto/identity_variables.h"
#include "proto/user_labels.h"

namespace nccl_exporter::plugin {

static_assert(kIdentityVariables.size() + kMostUserLabels < layout::kIdentityPairs,
              "NCCL's variables have one pair at least");
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

void CopyUncertainText(char* field, size_t size, const char* text) {
  constexpr size_t kPage = 4096, kMost = 128;
  char copy[kMost + 1] = "";
  size_t done = 0;
  int ends[2];
  if (text != nullptr && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
    while (done < kMost && (done == 0 || copy[done - 1] != '\0')) {
      const uintptr_t from = reinterpret_cast<uintptr_t>(text) + done;
      const size_t part = std::min(kMost - done, kPage - from % kPage);  // the next may be missing
      const auto bytes = static_cast<long>(part);
      if (syscall(SYS_write, ends[1], from, part) != bytes ||
          syscall(SYS_read, ends[0], copy + done, part) != bytes) {
        done = 0;
        break;
      }
      done += strnlen(copy + done, part - 1) + 1;
    }
    close(ends[0]);
    close(ends[1]);
  }
  copy[done] = '\0';
  CopyText(field, size, copy);
}

namespace {

// A hash distinguishes values that differ only behind the cut.
void SetValue(layout::IdentityPair& pair, const char* value) {
  CopyText(pair.value, sizeof(pair.value), value);
  if (std::strlen(value) < sizeof(pair.value)) return;
  CopyText(pair.value, sizeof(pair.value) - 9, value);
  std::snprintf(pair.value + std::strlen(pair.value), 10, "~%08x", AddToHash(0, value));
}

struct NcclVariable {
  const char* text;  // "NAME=value"
  size_t name_bytes;
};

// Another thread may change the environment meanwhile: it is walked once, as by one getenv().
void AddNcclVariables(layout::SegmentHeader* header, char* const* environment) {
  constexpr size_t kMostVariables = 256;
  NcclVariable variables[kMostVariables];
  size_t size = 0;
  for (const char* text; size < kMostVariables && (text = *environment) != nullptr; ++environment) {
    const char* const equals = IsNcclVariable(text) ? std::strchr(text, '=') : nullptr;
    if (equals != nullptr && equals[1] != '\0')
      variables[size++] = {text, static_cast<size_t>(equals - text)};
  }
  // Unlike std::sort(), it stays within the array whatever becomes of the texts.
  std::partial_sort(
      variables, variables + size, variables + size,
      [](const NcclVariable& a, const NcclVariable& b) { return std::strcmp(a.text, b.text) < 0; });

  const auto next = [&] {
    layout::IdentityPair& pair = header->identity[header->identity_count++];
    std::memset(static_cast<void*>(&pair), 0, sizeof(pair));
    return &pair;
  };
  layout::IdentityPair* const all = next();
  uint32_t hash = 0;
  for (size_t i = 0; i < size; ++i) hash = AddToHash(hash, variables[i].text);
  CopyText(all->key, sizeof(all->key), kAllNcclVariables.data());
  std::snprintf(all->value, sizeof(all->value), "%zu~%08x", size, hash);
  for (size_t i = 0; i < size && header->identity_count < layout::kIdentityPairs; ++i) {
    layout::IdentityPair* const pair = next();
    const auto& [text, name_bytes] = variables[i];
    const bool fits = name_bytes < sizeof(pair->key);
    CopyText(pair->key, fits ? name_bytes + 1 : sizeof(pair->key) - 1, text);
    if (!fits) pair->key[std::strlen(pair->key)] = '~';
    SetValue(*pair, text + name_bytes + 1);
  }
}

}  // namespace

// A name that fills the field has no NUL there: Linux has names of up to 64 bytes, and nodes may
// differ in the last of them.
void WriteHostName(layout::SegmentHeader* header) {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) name[0] = '\0';
  std::memset(header->host_name, 0, sizeof(header->host_name));
  std::memcpy(header->host_name, name, strnlen(name, sizeof(header->host_name)));
}

void WriteProcessIdentity(layout::SegmentHeader* header, const char* (*get)(const char* name),
                          const char* labels, char* const* environment) {
  header->pid = static_cast<uint64_t>(getpid());
  header->uid = geteuid();
  CopyText(header->plugin_version, sizeof(header->plugin_version), kPluginVersion);
  WriteHostName(header);

  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[length > 0 ? length : 0] = '\0';
  const char* slash = std::strrchr(path, '/');
  CopyText(header->executable, sizeof(header->executable), slash != nullptr ? slash + 1 : path);

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
    if (value == nullptr || value[0] == '\0') continue;
    layout::IdentityPair& pair = header->identity[count++];
    CopyText(pair.key, sizeof(pair.key), variable.name);
    SetValue(pair, value);
  }
  header->identity_count = count;
  if (environment != nullptr) AddNcclVariables(header, environment);
}

namespace {

using Get = const char* (*)(const char* name);

constexpr int32_t kMost = 99'999'999;  // more ranks has no job

bool IsSet(const char* text) { return text != nullptr && text[0] != '\0'; }

// The decimal number that `text` begins with, and in `end` what follows; -1 if there is none.
int32_t NumberAt(const char* text, const char** end) {
  int32_t number = -1;
  for (; *text >= '0' && *text <= '9' && number <= kMost; ++text)
    number = std::max(number, 0) * 10 + (*text - '0');
  *end = text;
  return number <= kMost ? number : -1;
}

// -1 if the text is anything else than a decimal number.
int32_t NumberOf(const char* text) {
  if (!IsSet(text)) return -1;
  const char* end = nullptr;
  const int32_t number = NumberAt(text, &end);
  return *end == '\0' ? number : -1;
}

int32_t BelowSize(const char* number, const char* size) {
  const int32_t value = NumberOf(number);
  return value < NumberOf(size) ? value : -1;
}

// Tasks on a node of the step, from Slurm's list "8(x2),4": those of node `index`, or the most of a
// node where the index is not in the list. 0: the list is not understood.
int32_t TasksPerNode(const char* list, int32_t index) {
  if (!IsSet(list)) return 0;
  int32_t most = 0, nodes = 0, here = 0;
  for (const char* at = list;;) {
    const int32_t tasks = NumberAt(at, &at);
    int32_t repeated = 1;
    if (at[0] == '(' && at[1] == 'x') {
      repeated = NumberAt(at + 2, &at);
      if (*at++ != ')') return 0;
    }
    if (tasks < 1 || repeated < 1 || nodes > kMost) return 0;
    if (index >= nodes && index - nodes < repeated) here = tasks;
    nodes += repeated;
    most = std::max(most, tasks);
    if (*at == '\0') return here != 0 ? here : most;
    if (*at++ != ',') return 0;
  }
}

bool IsExceeded(int32_t processes, int ranks) { return processes >= 1 && ranks > processes; }

bool ExceedsStep(Get get, int ranks, int nodes) {
  if (IsExceeded(NumberOf(get("SLURM_STEP_NUM_TASKS")), ranks)) return true;
  if (nodes < 1 || nodes > ranks) return false;
  const char* list = get("SLURM_STEP_TASKS_PER_NODE");
  if (nodes == 1) return IsExceeded(TasksPerNode(list, NumberOf(get("SLURM_NODEID"))), ranks);
  return IsExceeded(TasksPerNode(list, -1), (ranks - 1) / nodes + 1);
}

}  // namespace

LocalRanks FindLocalRanks(Get get, int ranks, int nodes) {
  constexpr uint32_t kUsualGpus = 8;
  constexpr int32_t kMostLocal = 64;
  uint32_t processes = 0;
  for (const char* name :
       {"LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    const char* text = get(name);
    const int32_t given = text != nullptr ? NumberAt(text, &text) : 0;
    if (processes == 0 && given >= 1 && given <= kMostLocal)
      processes = static_cast<uint32_t>(given);
  }
  const bool is_told = ranks >= 1 && nodes >= 1 && nodes <= ranks;
  const auto per_node =
      static_cast<uint32_t>(is_told ? std::min((ranks - 1) / nodes + 1, kMostLocal) : 0);
  if (processes == 0) return {.on_node = per_node > 1 ? per_node : kUsualGpus, .in_process = 1};
  if (per_node <= processes) return {.on_node = processes, .in_process = 1};
  return {.on_node = per_node, .in_process = (per_node - 1) / processes + 1};
}
// Slurm's numbers are those of the step: its numbers of the job, and those of a node, may be of
// another step.
RankNumbers FindRankNumbers(Get get) {
  const bool is_torchrun = IsSet(get("RANK"));
  const char* const size = get(is_torchrun ? "WORLD_SIZE" : "SLURM_STEP_NUM_TASKS");
  const int32_t global_rank = BelowSize(get(is_torchrun ? "RANK" : "SLURM_PROCID"), size);
  if (global_rank < 0) return {};
  const char* const local_size = is_torchrun ? get("LOCAL_WORLD_SIZE") : nullptr;
  return {.global_rank = global_rank,
          .local_rank = BelowSize(get(is_torchrun ? "LOCAL_RANK" : "SLURM_LOCALID"),
                                  IsSet(local_size) ? local_size : size),
          .world_size = NumberOf(size)};
}

bool HasMoreRanksThanProcesses(Get get, int ranks, int nodes) {
  if (!IsSet(get("RANK"))) return ExceedsStep(get, ranks, nodes);
  return IsExceeded(NumberOf(get("WORLD_SIZE")), ranks) ||
         (nodes == 1 && IsExceeded(NumberOf(get("LOCAL_WORLD_SIZE")), ranks));
}

}  // namespace nccl_exporter::plugin
