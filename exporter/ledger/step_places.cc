// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/step_places.h"

#include <algorithm>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Share of the largest weight of a kind below which a place is forgotten: it has seen nothing for
// 4.6 times the time of a mean.
constexpr double kLeastWeight = 0.01;

}  // namespace

// The ratio is off by less than per_step / steps: it names one number if that is below a half.
void StepPlaces::Learn(Function function, uint64_t operations, uint64_t steps) {
  if (steps == 0) return;
  const uint64_t per_step = (operations + steps / 2) / steps;
  const uint64_t exact = per_step * steps;
  const uint64_t off = std::max(operations, exact) - std::min(operations, exact);
  if (per_step == 0 || off > per_step || per_step >= steps / 2) return;
  const uint64_t before = std::exchange(per_step_[function], per_step);
  if (before != per_step) kinds_.clear();
}

uint64_t StepPlaces::PlacesOf(Function function) const {
  const auto found = per_step_.find(function);
  return found != per_step_.end() && found->second <= kMostPlaces ? found->second : 1;
}

void StepPlaces::See(const std::vector<collector::RecentOperation>& recent, double decay) {
  for (auto& [key, kind] : kinds_) {
    kind.operations.Fade(decay);
    double most = 0;
    for (auto& [number, place] : kind.places) {
      place.Fade(decay);
      most = std::max(most, place.weight);
    }
    std::erase_if(kind.places,
                  [&](const auto& place) { return place.second.weight < kLeastWeight * most; });
  }
  for (const collector::RecentOperation& operation : recent) {
    const auto launch_ns = static_cast<double>(operation.launch_ns);
    Kind& kind = kinds_[{operation.function, operation.size_class}];
    kind.operations.Add(launch_ns / static_cast<double>(operation.members));
    kind.places[operation.sequence % PlacesOf(operation.function)].Add(launch_ns);
  }
}

double StepPlaces::LongestToMean(const OperationKind& of) const {
  const auto found = kinds_.find(of);
  if (found == kinds_.end() || found->second.operations.sum_ns <= 0) return 1;
  const Kind& kind = found->second;
  double longest_ns = 0;
  for (const auto& [number, place] : kind.places) {
    if (place.weight > 0) longest_ns = std::max(longest_ns, place.sum_ns / place.weight);
  }
  return std::max(1.0, longest_ns * kind.operations.weight / kind.operations.sum_ns);
}

}  // namespace nccl_exporter::exporter
