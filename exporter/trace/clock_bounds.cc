// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/clock_bounds.h"

#include <cmath>

namespace nccl_exporter::exporter {

size_t ClockWindows::IndexOf(int64_t time_ns) const {
  const int64_t index = (time_ns - origin_ns) / length_ns;
  return static_cast<size_t>(
      std::clamp<int64_t>(index, 0, static_cast<int64_t>(bounds.size()) - 1));
}

OffsetBounds ClockWindows::Later(const OffsetBounds& then, int64_t later_ns) const {
  const double least_ns = static_cast<double>(later_ns) * (later_ns >= 0 ? least_rate : most_rate);
  const double most_ns = static_cast<double>(later_ns) * (later_ns >= 0 ? most_rate : least_rate);
  OffsetBounds later;
  if (IsKnown(then.least_ns))
    later.least_ns = Clamped(then.least_ns + static_cast<int64_t>(std::floor(least_ns)));
  if (IsKnown(then.most_ns))
    later.most_ns = Clamped(then.most_ns + static_cast<int64_t>(std::ceil(most_ns)));
  return later;
}

OffsetBounds ClockWindows::At(int64_t time_ns) const {
  const size_t index = IndexOf(time_ns);
  return Later(bounds[index], time_ns - MiddleOf(index));
}

void ClockWindows::Fix(int64_t offset_ns) {
  least_rate = most_rate = 0;
  std::ranges::fill(bounds, OffsetBounds{.least_ns = offset_ns, .most_ns = offset_ns});
}

bool ClockWindows::Narrow(const OffsetBounds& at, int64_t time_ns) {
  const size_t index = IndexOf(time_ns);
  const OffsetBounds moved = Later(at, MiddleOf(index) - time_ns);
  OffsetBounds& known = bounds[index];
  if (moved.least_ns <= known.least_ns && moved.most_ns >= known.most_ns) return false;
  known.least_ns = std::max(known.least_ns, moved.least_ns);
  known.most_ns = std::min(known.most_ns, moved.most_ns);
  return true;
}

bool ClockWindows::IsSoundAt(int64_t time_ns) const {
  const OffsetBounds& at = bounds[IndexOf(time_ns)];
  return at.least_ns <= at.most_ns;
}

bool ClockWindows::Drift(bool& changes) {
  bool is_sound = true;
  const auto carry = [&](size_t from, size_t to) {
    const int64_t from_ns = MiddleOf(from), to_ns = MiddleOf(to);
    changes |= Narrow(Later(bounds[from], to_ns - from_ns), to_ns);
    is_sound = is_sound && IsSoundAt(to_ns);
  };
  for (size_t i = 1; i < bounds.size(); ++i) carry(i - 1, i);
  for (size_t i = bounds.size() - 1; i > 0; --i) carry(i, i - 1);
  return is_sound;
}

// Some of the pairs: neighbours say the same.
bool ClockWindows::BoundRate() {
  constexpr size_t kSamples = 64;
  const size_t step = bounds.size() / kSamples + 1;
  for (size_t later = 0; later < bounds.size(); later += step) {
    for (size_t earlier = 0; earlier < later; earlier += step) {
      if (!bounds[earlier].is_known() || !bounds[later].is_known()) continue;
      const auto apart_ns = static_cast<double>(MiddleOf(later) - MiddleOf(earlier));
      const auto grown = [&](int64_t from_ns, int64_t to_ns) {
        return static_cast<double>(to_ns - from_ns) / apart_ns;
      };
      most_rate =
          std::min(most_rate, grown(bounds[earlier].least_ns, bounds[later].most_ns) + kRateChange);
      least_rate = std::max(least_rate,
                            grown(bounds[earlier].most_ns, bounds[later].least_ns) - kRateChange);
    }
  }
  return least_rate <= most_rate;
}

}  // namespace nccl_exporter::exporter
