// SPDX-License-Identifier: Apache-2.0
// LabelCache, the label sets of communicators and processes from one scrape to the next. A set is
// made and rendered when a communicator is first seen or changes, which is rare, and looked up at
// each scrape.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"
#include "exporter/series/metric_filter.h"

namespace nccl_exporter::exporter {

struct NewSetLimits {
  double at_once;
  double per_minute;
};

// Label sets of communicators, processes and comm="other", which have tens of series each. At once:
// 16 ranks with 300 communicators each, and their processes. Per minute: more than a process adds
// that takes a new communicator each second, in the long run.
inline constexpr NewSetLimits kNewSeriesSets{.at_once = 5120, .per_minute = 64};

// Label sets of the families of type info, which have one or two series each, and change a few
// times in the life of a communicator.
inline constexpr NewSetLimits kNewInfoSets{.at_once = 20480, .per_minute = 256};

// Number of new label sets that each user may still bring. A new label set is a new series, which
// Prometheus keeps in memory for hours. The limit of a scrape does not bound them: names and ids in
// a segment may change before the next scrape. For one thread at a time.
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

// The label sets of a communicator (series_labels.h). Equal sets are one object. One is null while
// its user has brought too many new ones: see NewSetBudget.
struct CommunicatorLabelSets {
  SharedLabels series;
  SharedLabels communicator_info;
  SharedLabels rank_info;
  SharedLabels rank_names;
};

// For one thread at a time. Calls from two threads at once corrupt the maps.
class LabelCache {
 public:
  // Dropped labels are in no set, except comm="other": without it, a sum would look like a
  // communicator.
  explicit LabelCache(const MetricFilter& filter = {},
                      const NewSetLimits& series_limits = kNewSeriesSets,
                      const NewSetLimits& info_limits = kNewInfoSets);
  ~LabelCache();
  LabelCache(const LabelCache&) = delete;
  LabelCache& operator=(const LabelCache&) = delete;

  // The time of the snapshot whose sets are looked up next.
  void SetTime(int64_t now_ns);

  // References are valid until the next Sweep(). Sets may be null.
  const CommunicatorLabelSets& Of(const collector::ProcessSnapshot& process,
                                  const collector::CommunicatorSnapshot& communicator);
  const SharedLabels& OfProcess(const collector::ProcessSnapshot& process);
  const SharedLabels& OfOthers(const collector::ProcessSnapshot& process);
  const SharedLabels& OfEnvironment(const collector::ProcessSnapshot& process);

  // Forgets label sets that were not looked up since the last call.
  void Sweep();

  // Label sets made so far, to see that they are not made again.
  uint64_t made() const { return made_; }
  // Label sets that are remembered, to see that they do not grow.
  size_t held() const { return interned_.size(); }

 private:
  struct CommunicatorEntry;
  struct ProcessEntry;

  ProcessEntry& EntryOf(const collector::ProcessSnapshot& process);
  Labels WithUserLabels(Labels labels, const collector::ProcessSnapshot& process) const;
  // Null if the set is new, not paid, and the user has no budget left for it.
  SharedLabels Intern(Labels labels, uint64_t uid, NewSetBudget& budget, bool is_paid);

  const MetricFilter filter_;
  NewSetBudget series_budget_;
  NewSetBudget info_budget_;

  std::map<collector::FileKey, ProcessEntry> processes_;  // by segment
  std::map<Labels, std::weak_ptr<const LabelSet>> interned_;
  bool has_replaced_ = false;  // since the last Sweep(): a process may change its labels at every
                               // scrape, and replaced sets must go
  uint64_t sweep_ = 1;
  uint64_t made_ = 0;
};

}  // namespace nccl_exporter::exporter
