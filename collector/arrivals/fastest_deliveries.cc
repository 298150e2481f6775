// SPDX-License-Identifier: Apache-2.0
// The line under the deliveries: the edge of their lower convex hull in the middle of the time that
// they cover.
#include "collector/arrivals/fastest_deliveries.h"

#include <algorithm>
#include <cstdlib>

#include "collector/arrivals/clock_distance.h"

namespace nccl_exporter::collector {
namespace {

int64_t Clamped(uint64_t ns) {
  return std::clamp(static_cast<int64_t>(ns), -ClockDistance::kUnknown, ClockDistance::kUnknown);
}

}  // namespace

int64_t FastestDeliveries::Line::At(int64_t then_ns) const {
  return through.distance_ns +
         static_cast<int64_t>(slope * static_cast<double>(then_ns - through.at_ns));
}

void FastestDeliveries::Learn(uint64_t stop_ns, uint64_t delivered_ns) {
  const Point point{.at_ns = Clamped(delivered_ns), .distance_ns = Clamped(delivered_ns - stop_ns)};
  if (deliveries_ == 0) since_ns_ = point.at_ns;
  ++deliveries_;
  if (!fastest_ || HeightOf(point) < HeightOf(*fastest_)) fastest_ = point;
  if (deliveries_ >= kDeliveriesOfStretch && point.at_ns - since_ns_ >= stretch_ns_)
    CloseStretch(point.at_ns);
}

std::optional<FastestDeliveries::Estimate> FastestDeliveries::At(uint64_t about_ns) const {
  if (!line_) return std::nullopt;
  const int64_t then_ns = Clamped(about_ns);
  const int64_t age_ns = then_ns > points_.back().at_ns ? then_ns - points_.back().at_ns : 0;
  if (age_ns > kOldestNs || line_->uncertainty_ns > kWorstNs) return std::nullopt;
  const auto changed_ns =
      static_cast<int64_t>(static_cast<double>(age_ns) * ClockDistance::kRateChange);
  return Estimate{.distance_ns = line_->At(then_ns),
                  .uncertainty_ns = line_->uncertainty_ns + changed_ns};
}

// Over the line as it was drawn last, so that drift does not make an earlier delivery a faster one.
int64_t FastestDeliveries::HeightOf(const Point& point) const {
  return point.distance_ns - (line_ ? line_->At(point.at_ns) : 0);
}

void FastestDeliveries::CloseStretch(int64_t now_ns) {
  if (line_ && std::abs(HeightOf(*fastest_)) > kClockIsSetNs) points_.clear();
  std::erase_if(points_, [&](const Point& point) {
    return point.at_ns > now_ns || now_ns - point.at_ns > kOldestNs;
  });
  if (points_.empty()) stretch_ns_ = kShortestStretchNs;
  if (points_.size() == kMostStretches) MergeStretches();
  points_.push_back(*fastest_);
  fastest_.reset();
  deliveries_ = 0;
  DrawLine();
}

// The oldest goes where stretches are as long as they may be.
void FastestDeliveries::MergeStretches() {
  if (stretch_ns_ >= kLongestStretchNs) {
    points_.erase(points_.begin());
    return;
  }
  for (size_t i = 0; i < kMostStretches / 2; ++i) {
    const Point& one = points_[2 * i];
    const Point& other = points_[2 * i + 1];
    points_[i] = HeightOf(other) < HeightOf(one) ? other : one;
  }
  points_.resize(kMostStretches / 2);
  stretch_ns_ *= 2;
}

std::vector<FastestDeliveries::Point> FastestDeliveries::LowerHull(
    const std::vector<Point>& points) {
  std::vector<Point> hull;
  const auto slope = [](const Point& from, const Point& to) {
    return static_cast<double>(to.distance_ns - from.distance_ns) /
           static_cast<double>(to.at_ns - from.at_ns);
  };
  for (const Point& point : points) {
    if (!hull.empty() && point.at_ns <= hull.back().at_ns) continue;  // no two at one time
    while (hull.size() >= 2 &&
           slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), point))
      hull.pop_back();
    hull.push_back(point);
  }
  return hull;
}

void FastestDeliveries::DrawLine() {
  line_.reset();
  if (points_.size() < kFewestStretches) return;
  const std::vector<Point> hull = LowerHull(points_);
  const int64_t middle_ns =
      points_.front().at_ns + (points_.back().at_ns - points_.front().at_ns) / 2;
  size_t right = 1;
  while (right + 1 < hull.size() && hull[right].at_ns < middle_ns) ++right;
  if (right >= hull.size()) return;
  const Point &from = hull[right - 1], &to = hull[right];
  const double slope = static_cast<double>(to.distance_ns - from.distance_ns) /
                       static_cast<double>(to.at_ns - from.at_ns);
  Line line{.through = to,
            .slope = std::clamp(slope, -ClockDistance::kMostDrift, ClockDistance::kMostDrift)};
  std::vector<int64_t> heights;
  for (const Point& point : points_) heights.push_back(point.distance_ns - line.At(point.at_ns));
  std::ranges::sort(heights);
  line.through.distance_ns += heights.front();
  line.uncertainty_ns = heights[heights.size() / 4] - heights.front();
  line_ = line;
}

}  // namespace nccl_exporter::collector
