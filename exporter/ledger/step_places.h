// SPDX-License-Identifier: Apache-2.0
// StepPlaces, how much longer the longest launch of a step takes than the mean operation of its
// function and size class. For one thread at a time.
//
// Operations of one kind wait unequally: the first of a step waits for the late rank, the next ones
// only for what the step has between them. The place of an operation is NCCL's number of it, modulo
// the operations of its function per step. Each place has a mean of its own. Operations that are
// not in every step shift the places; then the means forget within seconds.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/ledger/operation_times.h"

namespace nccl_exporter::exporter {

class StepPlaces {
 public:
  // A function with more operations per step is taken as one place: half of the operations that a
  // ring holds.
  static constexpr uint64_t kMostPlaces = 256;

  // Learns the operations of a function per step, from both counts over the same time. Nothing
  // changes if the counts do not prove one number. A new number forgets all that was seen.
  void Learn(Function function, uint64_t operations, uint64_t steps);
  // Places of the function in a step: 1 where they were not learned, or beyond kMostPlaces.
  uint64_t PlacesOf(Function function) const;

  // Sees the operations that were completed since the call before. `decay` multiplies the weights
  // of earlier ones.
  void See(const std::vector<collector::RecentOperation>& recent, double decay);

  // Longest mean of a place, divided by the mean of all operations; 1 if nothing was seen.
  double LongestToMean(const OperationKind& kind) const;

 private:
  struct Mean {
    double weight = 0;
    double sum_ns = 0;

    void Add(double ns) {
      weight += 1;
      sum_ns += ns;
    }
    void Fade(double decay) {
      weight *= decay;
      sum_ns *= decay;
    }
  };
  struct Kind {
    Mean operations;                  // each with its share of the launch
    std::map<uint64_t, Mean> places;  // each launch whole
  };

  std::map<Function, uint64_t> per_step_;
  std::map<OperationKind, Kind> kinds_;
};

}  // namespace nccl_exporter::exporter
