// SPDX-License-Identifier: Apache-2.0
// JobFilter, the jobs of the node that a command is asked for. For any thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {

class JobFilter {
 public:
  // Labels nccl_job, namespace and uid, as AddLabelFlags() sets them. Without one, all jobs fit.
  std::map<std::string, std::string> wanted = {};

  bool Fits(const JobKey& job) const;
  // The node without the processes of other jobs.
  std::shared_ptr<const collector::NodeSnapshot> Only(
      std::shared_ptr<const collector::NodeSnapshot> node) const;
  // Removes the findings about other jobs, and returns how many there were.
  size_t Remove(Judgement& judgement) const;
};

}  // namespace nccl_exporter::exporter
