// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/clock_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace nccl_exporter::exporter {
namespace {

using collector::kMostTraceNs;

int64_t Clamped(int64_t ns) { return std::clamp(ns, -kMostTraceNs, kMostTraceNs); }

bool IsKnown(int64_t bound_ns) { return std::abs(bound_ns) < kMostTraceNs; }

}  // namespace

size_t ClockBounds::Windows::IndexOf(int64_t time_ns) const {
  const int64_t index = (time_ns - origin_ns) / length_ns;
  return static_cast<size_t>(
      std::clamp<int64_t>(index, 0, static_cast<int64_t>(bounds.size()) - 1));
}

int64_t ClockBounds::Windows::MostLater(int64_t most_ns, int64_t later_ns) const {
  const double rate = later_ns >= 0 ? most_rate : least_rate;
  const double moved = std::ceil(static_cast<double>(later_ns) * rate);
  return IsKnown(most_ns) ? Clamped(most_ns + static_cast<int64_t>(moved)) : kMostTraceNs;
}

int64_t ClockBounds::Windows::LeastLater(int64_t least_ns, int64_t later_ns) const {
  const double rate = later_ns >= 0 ? least_rate : most_rate;
  const double moved = std::floor(static_cast<double>(later_ns) * rate);
  return IsKnown(least_ns) ? Clamped(least_ns + static_cast<int64_t>(moved)) : -kMostTraceNs;
}

OffsetBounds ClockBounds::Windows::At(int64_t time_ns) const {
  const size_t index = IndexOf(time_ns);
  const int64_t later_ns = time_ns - MiddleOf(index);
  return {.least_ns = LeastLater(bounds[index].least_ns, later_ns),
          .most_ns = MostLater(bounds[index].most_ns, later_ns)};
}

bool ClockBounds::Windows::LowerMost(int64_t most_ns, int64_t time_ns) {
  const size_t index = IndexOf(time_ns);
  const int64_t moved_ns = MostLater(most_ns, MiddleOf(index) - time_ns);
  if (moved_ns >= bounds[index].most_ns) return false;
  bounds[index].most_ns = moved_ns;
  return true;
}

bool ClockBounds::Windows::RaiseLeast(int64_t least_ns, int64_t time_ns) {
  const size_t index = IndexOf(time_ns);
  const int64_t moved_ns = LeastLater(least_ns, MiddleOf(index) - time_ns);
  if (moved_ns <= bounds[index].least_ns) return false;
  bounds[index].least_ns = moved_ns;
  return true;
}

bool ClockBounds::Windows::IsSoundAt(int64_t time_ns) const {
  const OffsetBounds& at = bounds[IndexOf(time_ns)];
  return at.least_ns <= at.most_ns;
}

bool ClockBounds::Windows::Drift(bool& changes) {
  bool is_sound = true;
  const auto carry = [&](size_t from, size_t to) {
    const int64_t to_ns = MiddleOf(to), later_ns = to_ns - MiddleOf(from);
    if (LowerMost(MostLater(bounds[from].most_ns, later_ns), to_ns)) changes = true;
    if (RaiseLeast(LeastLater(bounds[from].least_ns, later_ns), to_ns)) changes = true;
    is_sound = is_sound && bounds[to].least_ns <= bounds[to].most_ns;
  };
  for (size_t i = 1; i < bounds.size(); ++i) carry(i - 1, i);
  for (size_t i = bounds.size() - 1; i > 0; --i) carry(i, i - 1);
  return is_sound;
}

// By pairs of windows, some of them: neighbours say the same.
void ClockBounds::Windows::BoundRate() {
  constexpr size_t kSamples = 64;
  const size_t step = bounds.size() / kSamples + 1;
  for (size_t later = 0; later < bounds.size(); later += step) {
    for (size_t earlier = 0; earlier < later; earlier += step) {
      if (!bounds[earlier].is_known() || !bounds[later].is_known()) continue;
      const auto apart_ns = static_cast<double>(MiddleOf(later) - MiddleOf(earlier));
      const auto grown = [&](int64_t from_ns, int64_t to_ns) {
        return static_cast<double>(to_ns - from_ns) / apart_ns;
      };
      const double most = grown(bounds[earlier].least_ns, bounds[later].most_ns);
      const double least = grown(bounds[earlier].most_ns, bounds[later].least_ns);
      most_rate = std::min(most_rate, most + kRateChange);
      least_rate = std::max(least_rate, least - kRateChange);
    }
  }
}

OffsetBounds ClockBounds::At(size_t clock, int64_t time_ns) const {
  return clocks_[clock].At(time_ns);
}

}  // namespace nccl_exporter::exporter
