// SPDX-License-Identifier: Apache-2.0
// Bounds of the distance between two clocks that drift: what is known of it at one time holds at
// another one as far as the rate of the drift is known. The rate is bounded by what was learned at
// different times within a minute.
//
// Both clocks run at rates that hardly change within kWindowNs (kRateChange). So each pair of a
// lower and an upper bound of different times bounds the rate, and the rate says how much each
// bound loosens with its age. This is the same as to look for all straight lines between the lower
// and the upper bounds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace nccl_exporter::collector {

// Not thread-safe. Takes any numbers: those that make no sense give ranges that make none, without
// harm.
class ClockDistance {
 public:
  // Neither bound is ever beyond this, so that the difference of two is no overflow. 73 years.
  static constexpr int64_t kUnknown = int64_t{1} << 61;
  // Fastest drift of two clocks against each other: crystals of 100 parts in a million each.
  static constexpr double kMostDrift = 200e-6;
  // Largest change of the drift's rate within a window: crystals change by some tenths of a part in
  // a million per degree, and a board's temperature by some degrees in a minute.
  static constexpr double kRateChange = 1e-6;
  static constexpr int64_t kWindowNs = 64'000'000'000;

  // At `at_ns` the distance was at least, or at most, this. A bound that contradicts the former
  // ones (a clock was set) replaces them all.
  void LearnLeast(int64_t least_ns, int64_t at_ns) {
    if (least_ns <= LeastAt(at_ns)) return;
    least_ = {.value_ns = Clamped(least_ns), .at_ns = Clamped(at_ns)};
    if (least_ns > MostAt(at_ns)) {
      const Bound told = least_;
      *this = {};
      least_ = told;
    }
    Remember(&Window::least, least_);
  }
  void LearnMost(int64_t most_ns, int64_t at_ns) {
    if (most_ns >= MostAt(at_ns)) return;
    most_ = {.value_ns = Clamped(most_ns), .at_ns = Clamped(at_ns)};
    if (most_ns < LeastAt(at_ns)) {
      const Bound told = most_;
      *this = {};
      most_ = told;
    }
    Remember(&Window::most, most_);
  }

  bool HasLeast() const { return least_.is_known(); }
  // -kUnknown and kUnknown if nothing is known.
  int64_t LeastAt(int64_t then_ns) const { return LeastOf(least_, then_ns); }
  int64_t MostAt(int64_t then_ns) const { return MostOf(most_, then_ns); }

 private:
  struct Bound {
    int64_t value_ns = 0;
    int64_t at_ns = kNever;

    bool is_known() const { return at_ns != kNever; }
  };
  // The closest bounds of two seconds. A bound that was not the closest when it was learned says
  // nothing of the rate.
  struct Window {
    Bound least, most;
  };
  static constexpr int64_t kNever = INT64_MIN;
  static constexpr size_t kStretches = 32;
  static constexpr int64_t kStretchNs = kWindowNs / kStretches;

  static int64_t Clamped(int64_t ns) { return std::clamp(ns, -kUnknown, kUnknown); }

  // Drift over a time at a rate. Beyond a window it is `rate_beyond`: no rate is known for longer.
  static int64_t Drift(int64_t ns, double rate, double rate_beyond) {
    const int64_t within_ns = std::clamp(ns, -kWindowNs, kWindowNs);
    return static_cast<int64_t>(static_cast<double>(within_ns) * rate +
                                static_cast<double>(ns - within_ns) * rate_beyond);
  }
  int64_t LeastOf(const Bound& bound, int64_t then_ns) const {
    if (!bound.is_known()) return -kUnknown;
    const int64_t age_ns = Clamped(then_ns) - bound.at_ns;
    const int64_t drift_ns = age_ns >= 0 ? Drift(age_ns, least_rate_, -kMostDrift)
                                         : Drift(age_ns, most_rate_, kMostDrift);
    return Clamped(bound.value_ns + drift_ns);
  }
  int64_t MostOf(const Bound& bound, int64_t then_ns) const {
    if (!bound.is_known()) return kUnknown;
    const int64_t age_ns = Clamped(then_ns) - bound.at_ns;
    const int64_t drift_ns = age_ns >= 0 ? Drift(age_ns, most_rate_, kMostDrift)
                                         : Drift(age_ns, least_rate_, -kMostDrift);
    return Clamped(bound.value_ns + drift_ns);
  }

  void Remember(Bound Window::*side, const Bound& bound) {
    if (since_ns_ == kNever) since_ns_ = bound.at_ns;
    if (bound.at_ns - since_ns_ >= kStretchNs) {
      BoundRate(bound.at_ns);
      since_ns_ = bound.at_ns;
      latest_ = (latest_ + 1) % kStretches;
      stretches_[latest_] = {};
    }
    stretches_[latest_].*side = bound;
  }

  void BoundRate(int64_t now_ns) {
    double least = -kMostDrift, most = kMostDrift;
    const auto is_recent = [&](const Bound& bound) {
      return bound.is_known() && now_ns - bound.at_ns <= kWindowNs && bound.at_ns <= now_ns;
    };
    for (const Window& one : stretches_) {
      if (!is_recent(one.least)) continue;
      for (const Window& other : stretches_) {
        if (!is_recent(other.most)) continue;
        const int64_t apart_ns = other.most.at_ns - one.least.at_ns;
        if (apart_ns == 0) continue;
        const double rate = static_cast<double>(other.most.value_ns - one.least.value_ns) /
                            static_cast<double>(apart_ns);
        if (apart_ns > 0) most = std::min(most, rate + kRateChange);
        if (apart_ns < 0) least = std::max(least, rate - kRateChange);
      }
    }
    if (least > most) {  // the rate has changed by more than it should
      stretches_ = {};
      least = -kMostDrift, most = kMostDrift;
    }
    least_rate_ = least;
    most_rate_ = most;
    for (const Window& stretch : stretches_) {
      if (is_recent(stretch.least) && LeastOf(stretch.least, now_ns) > LeastAt(now_ns))
        least_ = stretch.least;
      if (is_recent(stretch.most) && MostOf(stretch.most, now_ns) < MostAt(now_ns))
        most_ = stretch.most;
    }
  }

  Bound least_, most_;  // the closest, with their age
  double least_rate_ = -kMostDrift;
  double most_rate_ = kMostDrift;
  std::array<Window, kStretches> stretches_{};
  size_t latest_ = 0;
  int64_t since_ns_ = kNever;  // of the latest stretch
};

}  // namespace nccl_exporter::collector
