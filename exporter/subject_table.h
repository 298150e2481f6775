// SPDX-License-Identifier: Apache-2.0
// Communicators grouped by their labels, so that no two series of a scrape can be the same.
//
// Label sets are nearly always one communicator's alone. They coincide when a communicator is made anew with the same
// id (the closed one is still served for the retention time), when two processes outside any job report the same id and
// rank, and, by design, for comm="other". Then counters and histograms are summed and gauges and info metrics are those
// of the newest member. When a closed member's retention time is over, the sum drops: to PromQL a counter reset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/label_cache.h"

namespace nccl_exporter {

struct Member {
  const ProcessSnapshot* process = nullptr;
  const CommunicatorSnapshot* communicator = nullptr;
};

struct Subject {
  SharedLabels labels;
  std::vector<Member> members;  // in the snapshot's order, at least one

  // The member in use that was created last; if none is in use, the one created last.
  const Member& Newest() const;

  // When the first member was created: sums count since then, and begin anew with the next when that one goes.
  int64_t CreatedRealtimeNs() const;
};

class SubjectTable {
 public:
  // Communicators whose id is not known yet are left out. Points into `snapshot`; `labels` outlives this object.
  SubjectTable(const NodeSnapshot& snapshot, LabelCache& labels);

  // Moves the members of named()[first] and all after it to comm="other".
  void FoldFrom(size_t first);

  const std::vector<Subject>& named() const { return named_.subjects; }    // in the snapshot's order
  const std::vector<Subject>& others() const { return others_.subjects; }  // comm="other", one for each job

 private:
  struct Group {
    std::vector<Subject> subjects;
    std::unordered_map<const LabelSet*, size_t> index;  // equal sets are one object of the cache

    void Add(const SharedLabels& labels, const Member& member);
  };

  LabelCache& labels_;
  Group named_;
  Group others_;
};

}  // namespace nccl_exporter
