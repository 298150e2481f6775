// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/rank_numbers.h"

#include <algorithm>

namespace nccl_exporter::plugin {
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

RankNumbers FindRankNumbers(Get get) {
  RankNumbers numbers;
  const char* rank = get("RANK");
  if (IsSet(rank)) {
    numbers.global_rank = BelowSize(rank, get("WORLD_SIZE"));
    if (numbers.global_rank < 0) return {};
    const char* local_size = get("LOCAL_WORLD_SIZE");
    numbers.local_rank =
        BelowSize(get("LOCAL_RANK"), IsSet(local_size) ? local_size : get("WORLD_SIZE"));
    numbers.world_size = NumberOf(get("WORLD_SIZE"));
    return numbers;
  }
  // Slurm's numbers of the step: its numbers of the job, and those of a node, may be of another
  // step.
  numbers.global_rank = BelowSize(get("SLURM_PROCID"), get("SLURM_STEP_NUM_TASKS"));
  if (numbers.global_rank < 0) return {};
  numbers.local_rank = BelowSize(get("SLURM_LOCALID"), get("SLURM_STEP_NUM_TASKS"));
  numbers.world_size = NumberOf(get("SLURM_STEP_NUM_TASKS"));
  return numbers;
}

bool HasMoreRanksThanProcesses(Get get, int ranks, int nodes) {
  if (!IsSet(get("RANK"))) return ExceedsStep(get, ranks, nodes);
  return IsExceeded(NumberOf(get("WORLD_SIZE")), ranks) ||
         (nodes == 1 && IsExceeded(NumberOf(get("LOCAL_WORLD_SIZE")), ranks));
}

}  // namespace nccl_exporter::plugin
