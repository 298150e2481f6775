// SPDX-License-Identifier: Apache-2.0
// Options by which a job is played to the plugin: all that NCCL, its settings and the machine
// decide, not the workload.
#pragma once

#include <cstdint>

#include "simulator/release/fault.h"
#include "simulator/release/release.h"

namespace nccl_exporter::sim {

enum class Network : uint8_t { kNone, kBetweenNodes, kAll };

// The progress thread and the network below it.
struct NetworkOptions {
  int overlap = 8;                // steps of an operation that are under way at once
  int64_t poll_ns = 1000;         // from one look of the progress thread to the next
  int most_repeats = 64;          // of a start or of state 20, in one operation
  uint64_t chunk_bytes = 524288;  // of a step
  // The sends of odd channels go through the process of a neighbour, and its sends through ours.
  bool uses_pxn = false;
};

struct PlayOptions {
  Release release{kTypicalNcclVersions.back()};
  uint64_t seed = 1;
  Network network = Network::kBetweenNodes;  // operations that cross it
  NetworkOptions network_options;
  int most_channels = 8;         // of a collective
  bool uses_collnet = false;     // for AllReduce of 4 MiB and more on several nodes
  bool uses_symmetric = false;   // buffers are symmetric windows; see Release::AnnouncesSymmetric
  bool captures_graphs = false;  // groups are captured once, then replayed
  bool is_nonblocking = false;   // communicators launch on a thread of their own
  bool names_communicators = true;  // ncclConfig_t.commName is set
  int64_t recreate_every = 0;       // steps, after which all communicators are made again; 0: never
  int64_t gpu_clock_granularity_ns = 32;
  double host_work_ms = 0;  // CPU time of a thread before its calls of a step, in real time
  Faults faults;
  bool lists_operations = false;  // the ground truth has every operation with its true duration
};

}  // namespace nccl_exporter::sim
