// SPDX-License-Identifier: Apache-2.0
// StepPlaces, how much longer the longest launch of a step takes than the mean operation of its
// function and size class. For one thread at a time.
//
// Operations of one kind wait unequally: the first of a step waits for the rank that is late, the
// next ones only for what the step has between them. And the plugin shares a launch's time among
// its operations. The place of an operation is NCCL's number of it, modulo the operations of its
// function per step: so each place has a mean of its own, wherever the counting begins.
// Operations that are not in every step shift the places; then the means forget within seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/ledger/operation_times.h"

namespace nccl_exporter::exporter {

class StepPlaces {
 public:
  // A function with more operations per step is taken as one place: half of the operations that a
  // ring holds.
  static constexpr uint64_t kMostPlaces = 256;

  // Operations of a function in so many steps: how many there are in each, to the nearest, as both
  // counts are of the same time, give or take one step. What was found before stays if they name no
  // number. Another one forgets all that was seen.
  void Learn(uint8_t function, uint64_t operations, uint64_t steps);
  // How many places it has: 1 where that was not learned, or beyond kMostPlaces.
  uint64_t PlacesOf(uint8_t function) const;

  // Operations of the communicator that were completed since the call before. `decay`: what the
  // weights of earlier ones are multiplied by.
  void See(const std::vector<collector::RecentOperation>& recent, double decay);

  // Of one function and size class. 1 if nothing was seen of it.
  double LongestToMean(const OperationKey& key) const;

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

  std::map<uint8_t, uint64_t> per_step_;  // by function
  std::map<OperationKey, Kind> kinds_;
};

}  // namespace nccl_exporter::exporter
