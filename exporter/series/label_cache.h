// SPDX-License-Identifier: Apache-2.0
// Label sets of communicators and processes from one scrape to the next: made and rendered when one is first seen or
// changes, which is seldom, and looked up at each scrape.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "collector/node_snapshot.h"
#include "exporter/catalogue/metric_switches.h"
#include "exporter/exposition/exposition.h"

namespace nccl_exporter {

// What series_labels.h makes of a communicator; equal sets are one object.
struct CommunicatorLabelSets {
  SharedLabels series;
  SharedLabels communicator_info;
  SharedLabels rank_info;
};

// For one thread at a time.
class LabelCache {
 public:
  // Labels that are dropped are in no set, but for comm="other", which tells that it is no communicator's.
  explicit LabelCache(const MetricSwitches& switches = {});
  ~LabelCache();
  LabelCache(const LabelCache&) = delete;
  LabelCache& operator=(const LabelCache&) = delete;

  // References hold until the next Sweep().
  const CommunicatorLabelSets& Of(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator);
  const SharedLabels& OfProcess(const ProcessSnapshot& process);
  const SharedLabels& OfOthers(const ProcessSnapshot& process);

  // Forgets what was not asked for since the last call.
  void Sweep();

  // Label sets made so far, to see that they are not made again.
  uint64_t made() const { return made_; }
  // Label sets that are remembered, to see that they do not grow.
  size_t held() const { return interned_.size(); }

 private:
  struct CommunicatorEntry;
  struct ProcessEntry;

  ProcessEntry& EntryOf(const ProcessSnapshot& process);
  SharedLabels Intern(Labels labels);

  const MetricSwitches switches_;

  std::map<FileKey, ProcessEntry> processes_;  // by segment
  std::map<Labels, std::weak_ptr<const LabelSet>> interned_;
  bool has_replaced_ = false;  // since the last Sweep(): somebody may change his names at every scrape
  uint64_t sweep_ = 1;
  uint64_t made_ = 0;
};

}  // namespace nccl_exporter
