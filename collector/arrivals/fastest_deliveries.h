// SPDX-License-Identifier: Apache-2.0
// Where a GPU's clock stands against CLOCK_MONOTONIC, but for the time that its fastest deliveries
// take: an estimate.
//
// The end of an operation is delivered some time after it came, and never before: seen over time,
// the distances between delivery and end lie above a straight line. Its slope is the drift of the
// clocks. It lies above the clocks' true distance by the fastest delivery, which is about the same
// for all GPUs of a node. What a rank is late by is not in it, since ends and deliveries do not
// depend on starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace nccl_exporter::collector {

// Not thread-safe. Takes any numbers: those that make no sense give estimates that make none,
// without harm.
class FastestDeliveries {
 public:
  // Each stretch of time contributes its fastest delivery, of at least so many.
  static constexpr size_t kDeliveriesOfStretch = 8;
  // A line needs so many stretches: fewer do not show how far the fastest deliveries differ among
  // themselves.
  static constexpr size_t kFewestStretches = 8;
  static constexpr size_t kMostStretches = 32;
  // A stretch is short at first, so that a job is judged after a fifth of a second. When there are
  // too many, two become one: a line is drawn through two minutes, and never through what is older
  // than five.
  static constexpr int64_t kShortestStretchNs = 20'000'000;
  static constexpr int64_t kLongestStretchNs = 4'000'000'000;
  static constexpr int64_t kOldestNs = 300'000'000'000;
  // A stretch whose fastest delivery is so far from the line: the clock was set, or nothing was
  // delivered in time.
  static constexpr int64_t kClockIsSetNs = 10'000'000;
  // A distance that is more uncertain is no estimate: it names no rank, and sums of senseless
  // numbers stay in range.
  static constexpr int64_t kWorstNs = 1'000'000'000;

  void Learn(uint64_t stop_ns, uint64_t delivered_ns);

  struct Estimate {
    int64_t distance_ns = 0;     // CLOCK_MONOTONIC minus the GPU's clock, plus the fastest delivery
    int64_t uncertainty_ns = 0;  // by which the fastest deliveries differ among themselves
  };
  std::optional<Estimate> At(uint64_t about_ns) const;

 private:
  struct Point {
    int64_t at_ns = 0;
    int64_t distance_ns = 0;
  };
  struct Line {
    Point through;
    double slope = 0;
    int64_t uncertainty_ns = 0;

    int64_t At(int64_t then_ns) const;
  };

  int64_t HeightOf(const Point& point) const;
  void CloseStretch(int64_t now_ns);
  void MergeStretches();
  void DrawLine();
  static std::vector<Point> LowerHull(const std::vector<Point>& points);

  std::vector<Point> points_;  // by time, one a stretch
  std::optional<Point> fastest_;
  size_t deliveries_ = 0;  // of the stretch that is open
  int64_t since_ns_ = 0;
  int64_t stretch_ns_ = kShortestStretchNs;
  std::optional<Line> line_;
};

}  // namespace nccl_exporter::collector
