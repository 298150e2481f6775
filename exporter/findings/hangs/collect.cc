// SPDX-License-Identifier: Apache-2.0
// Lists what to save before a job that hangs is killed.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "exporter/findings/hangs/hang_sentences.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

bool Lives(const FoundRank& rank) {
  return rank.pid != 0 && rank.standing != Standing::kKilled && rank.standing != Standing::kMissing;
}

// ", up to collective 9000"; empty where the rank is in another communicator.
std::string SequenceText(const GraphCommunicator& communicator, const FoundRank& found) {
  for (const GraphRank& rank : communicator.ranks) {
    if (rank.rank.communicator->rank == found.rank && rank.rank.process->pid == found.pid)
      return fmt::format(", up to collective {}", rank.rank.communicator->started_sequence);
  }
  return "";
}

}  // namespace

bool IsPlain(std::string_view name) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyz0123456789.-";
  return !name.empty() && name.front() != '-' &&
         name.find_first_not_of(kPlain) == std::string_view::npos;
}

void AddCollect(const GraphCommunicator& communicator, Finding& finding) {
  std::string ras;
  for (const std::vector<FoundRank>* const found : {&finding.culprits, &finding.waiting}) {
    const auto rank = std::ranges::find_if(*found, Lives);
    if (rank == found->end()) continue;
    const std::string &name_space = communicator.key.name_space, &pod = rank->pod;
    if (!pod.empty() && !(IsPlain(name_space) && IsPlain(pod))) continue;
    const std::string there =
        pod.empty() ? "" : fmt::format("kubectl exec -n {} {} -- ", name_space, pod);
    finding.collect.emplace_back("stack of " + RankText(*rank, NameOf(communicator)),
                                 fmt::format("{}py-spy dump --pid {}", there, rank->pid));
    // PyTorch writes it at a time-out or when it is asked: the name of today, then an older one.
    if (!rank->global_rank.empty())
      finding.collect.emplace_back(
          fmt::format("flight recorder of global rank {}, of PyTorch{}", rank->global_rank,
                      SequenceText(communicator, *rank)),
          fmt::format("{0}sh -c 'cat ~/.cache/torch/comm_lib_trace_rank_{1} || cat "
                      "/tmp/nccl_trace_rank_{1}' >rank-{1}.flight-recorder",
                      there, rank->global_rank));
    if (ras.empty()) ras = there + "ncclras -v";
  }
  if (!ras.empty())
    finding.collect.emplace_back("all processes of the job, by NCCL 2.24 and later", ras);
  finding.collect.emplace_back("GPUs and the kernel's log of this node: XID, out of memory",
                               "sh -c 'nvidia-smi -q; dmesg -T'");
}

}  // namespace nccl_exporter::exporter
