// SPDX-License-Identifier: Apache-2.0
// The communicators of a snapshot grouped by their labels, so that no two series of a scrape can be the same.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/series/departed_counts.h"
#include "exporter/series/label_cache.h"
#include "exporter/series/subject.h"

namespace nccl_exporter {

class SubjectTable {
 public:
  // Communicators whose id is not known yet are left out. Points into `snapshot` and `departed`; these and `labels`
  // outlive this object.
  SubjectTable(const NodeSnapshot& snapshot, LabelCache& labels, const DepartedCounts& departed);

  // Moves the members of these subjects, indices of named() in order, to comm="other".
  void Fold(const std::vector<size_t>& subjects);

  const std::vector<Subject>& named() const { return named_.subjects; }    // in the snapshot's order
  const std::vector<Subject>& others() const { return others_.subjects; }  // comm="other", one for each job

 private:
  struct Group {
    std::vector<Subject> subjects;
    std::unordered_map<const LabelSet*, size_t> index;  // equal sets are one object of the cache
  };

  void Add(const SharedLabels& labels, const Member& member, Group& group);

  LabelCache& labels_;
  const DepartedCounts& departed_;
  Group named_;
  Group others_;
};

}  // namespace nccl_exporter
