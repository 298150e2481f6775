// SPDX-License-Identifier: Apache-2.0
#include "collector/segments/shared_numbers.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace nccl_exporter::collector {
namespace {

using JobOfUser = std::tuple<uint64_t, std::string, std::string>;

JobOfUser JobOf(const ProcessSnapshot& process) {
  return {process.uid, process.JobName(), process.Identity("POD_NAMESPACE")};
}

}  // namespace

void DropSharedNumbers(NodeSnapshot& snapshot) {
  for (const auto number : {&RankNumbers::global_rank, &RankNumbers::local_rank}) {
    std::map<std::pair<JobOfUser, uint32_t>, size_t> processes_of;
    for (const ProcessSnapshot& process : snapshot.processes) {
      if (process.is_alive && process.numbers.*number)
        ++processes_of[{JobOf(process), *(process.numbers.*number)}];
    }
    for (ProcessSnapshot& process : snapshot.processes) {
      if (!process.is_alive) continue;
      const JobOfUser job = JobOf(process);
      const auto drop_if_shared = [&](RankNumbers& numbers) {
        if (!(numbers.*number)) return;
        const auto found = processes_of.find({job, *(numbers.*number)});
        if (found != processes_of.end() && found->second > 1) (numbers.*number).reset();
      };
      drop_if_shared(process.numbers);
      for (CommunicatorSnapshot& communicator : process.communicators)
        drop_if_shared(communicator.numbers);
    }
  }
}

}  // namespace nccl_exporter::collector
