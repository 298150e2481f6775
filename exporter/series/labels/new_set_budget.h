// SPDX-License-Identifier: Apache-2.0
// NewSetBudget, how many new label sets each user may bring. For one thread at a time.
//
// A new label set is a new series, which Prometheus keeps in memory for hours. The limit of a
// scrape does not bound them: names and ids in a segment may change before the next scrape.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace nccl_exporter::exporter {

struct NewSetLimits {
  double at_once;
  double per_minute;
};

// Label sets of communicators, processes and comm="other", which have tens of series each. At once:
// 16 ranks with 300 communicators each, and their processes. Per minute: more than a process adds
// that takes a new communicator each second, in the long run.
inline constexpr NewSetLimits kNewSeriesSets{.at_once = 5120, .per_minute = 64};

// Label sets of nccl_rank_info and nccl_communicator_info, which have one or two series each, and
// change a few times in the life of a communicator.
inline constexpr NewSetLimits kNewInfoSets{.at_once = 20480, .per_minute = 256};

class NewSetBudget {
 public:
  explicit NewSetBudget(const NewSetLimits& limits) : limits_(limits) {}

  // Moves on to this time; a step back changes nothing.
  void SetTime(int64_t now_ns) {
    const double minutes = static_cast<double>(std::max<int64_t>(now_ns - now_ns_, 0)) / 60e9;
    now_ns_ = now_ns;
    for (auto& [uid, spent] : spent_) spent -= minutes * limits_.per_minute;
    std::erase_if(spent_, [](const auto& user) { return user.second <= 0; });
  }

  // Whether the user may bring one more, which is then counted.
  bool Take(uint64_t uid) {
    double& spent = spent_[uid];
    if (spent + 1 > limits_.at_once) return false;
    ++spent;
    return true;
  }

 private:
  const NewSetLimits limits_;
  int64_t now_ns_ = 0;
  std::map<uint64_t, double> spent_;  // users who have spent nothing are absent
};

}  // namespace nccl_exporter::exporter
