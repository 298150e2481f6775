// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job_filter.h"

#include <algorithm>
#include <utility>

namespace nccl_exporter::exporter {

bool JobFilter::Fits(const JobKey& job) const {
  const std::map<std::string, std::string> labels{
      {"nccl_job", job.job}, {"namespace", job.name_space}, {"uid", std::to_string(job.uid)}};
  return std::ranges::includes(labels, wanted);
}

std::shared_ptr<const collector::NodeSnapshot> JobFilter::Only(
    std::shared_ptr<const collector::NodeSnapshot> node) const {
  if (wanted.empty()) return node;
  auto only = std::make_shared<collector::NodeSnapshot>(*node);
  std::erase_if(only->processes, [&](const auto& process) { return !Fits(JobKeyOf(process)); });
  only->segments.live = static_cast<decltype(only->segments.live)>(
      std::ranges::count_if(only->processes, &collector::ProcessSnapshot::is_alive));
  return only;
}

size_t JobFilter::Remove(Judgement& judgement) const {
  return std::erase_if(judgement.findings,
                       [&](const Finding& finding) { return !Fits(JobKeyOf(finding)); });
}

}  // namespace nccl_exporter::exporter
