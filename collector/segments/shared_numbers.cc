// SPDX-License-Identifier: Apache-2.0
#include "collector/segments/shared_numbers.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace nccl_exporter::collector {
namespace {

using JobOfUser = std::tuple<uint64_t, std::string, std::string>;

class Owners {
 public:
  explicit Owners(std::optional<uint32_t> RankNumbers::*number) : number_(number) {}

  void Add(const JobOfUser& job, const RankNumbers& numbers) {
    if (numbers.*number_) ++counts_[{job, *(numbers.*number_)}];
  }
  void DropIfShared(const JobOfUser& job, RankNumbers& numbers) const {
    if (!(numbers.*number_)) return;
    const auto found = counts_.find({job, *(numbers.*number_)});
    if (found != counts_.end() && found->second > 1) (numbers.*number_).reset();
  }

 private:
  std::optional<uint32_t> RankNumbers::*number_;
  std::map<std::pair<JobOfUser, uint32_t>, size_t> counts_;  // living processes
};

JobOfUser JobOf(const ProcessSnapshot& process) {
  return {process.uid, process.JobName(), process.Identity("POD_NAMESPACE")};
}

}  // namespace

void DropSharedNumbers(NodeSnapshot& snapshot) {
  for (std::optional<uint32_t> RankNumbers::*number :
       {&RankNumbers::global_rank, &RankNumbers::local_rank}) {
    Owners owners(number);
    for (const ProcessSnapshot& process : snapshot.processes)
      if (process.is_alive) owners.Add(JobOf(process), process.numbers);
    for (ProcessSnapshot& process : snapshot.processes) {
      if (!process.is_alive) continue;
      const JobOfUser job = JobOf(process);
      owners.DropIfShared(job, process.numbers);
      for (CommunicatorSnapshot& communicator : process.communicators)
        owners.DropIfShared(job, communicator.numbers);
    }
  }
}

}  // namespace nccl_exporter::collector
