// SPDX-License-Identifier: Apache-2.0
// Finds jobs across nodes whose processes use no adapter for verbs, beside one that has a link.
#include <fmt/format.h>

#include <map>
#include <set>

#include "exporter/findings/node_troubles.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {

std::vector<Finding> SocketFallbacks(const std::vector<CommunicatorOnNode>& communicators) {
  std::map<JobKey, Finding> jobs;
  std::map<JobKey, std::set<collector::FileKey>> processes;
  for (const CommunicatorOnNode& communicator : communicators) {
    if (!SpansNodes(communicator)) continue;
    for (const RankOnNode& rank : communicator.ranks) {
      if (!rank.process->host || rank.process->host->verbs_devices != 0) continue;
      const JobKey job = JobKeyOf(communicator.key);
      Finding finding =
          FindingAbout(FindingKind::kSocketFallback, Severity::kWarning, communicator.key, rank);
      finding.since_realtime_ns = rank.communicator->created_realtime_ns;
      processes[job].insert(rank.process->file);
      jobs.try_emplace(job, std::move(finding));
    }
  }
  std::vector<Finding> findings;
  for (auto& [key, finding] : jobs) {
    const size_t count = processes[key].size();
    finding.headline = fmt::format(
        "{} sends to other nodes over sockets: no adapter for verbs is used by {} process{} on "
        "this node, which has one.",
        Capital(finding.job), count, count == 1 ? "" : "es");
    finding.cost = "sockets are 5 to 20 times slower than InfiniBand or RoCE";
    finding.next =
        "Search the job's log for NET/IB and NET/Socket (NCCL_DEBUG=INFO). Give the container "
        "/dev/infiniband and the libraries of rdma-core, and look at NCCL_NET, NCCL_IB_DISABLE "
        "and NCCL_IB_HCA.";
    finding.runbook = "NCCLSocketFallback";
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
