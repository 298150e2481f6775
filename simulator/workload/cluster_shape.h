// SPDX-License-Identifier: Apache-2.0
// Layout of the simulated ranks over nodes, processes and calling threads.
#pragma once

namespace nccl_exporter::sim {

struct ClusterShape {
  int nodes = 1;
  int ranks_per_node = 8;
  int ranks_per_process = 1;
  int ranks_per_thread = 1;  // ranks that one thread calls NCCL for: 1 or ranks_per_process

  int ranks() const { return nodes * ranks_per_node; }
  int processes() const { return ranks() / ranks_per_process; }
  int threads() const { return ranks() / ranks_per_thread; }
  int NodeOf(int rank) const { return rank / ranks_per_node; }
  int LocalRankOf(int rank) const { return rank % ranks_per_node; }
  int ProcessOf(int rank) const { return rank / ranks_per_process; }
};

}  // namespace nccl_exporter::sim
