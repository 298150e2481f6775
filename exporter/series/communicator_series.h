// SPDX-License-Identifier: Apache-2.0
// CommunicatorSeries, the lines that know the value of each metric of a communicator. For the
// thread that makes the scrape.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "exporter/ledger/book.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/function_labels.h"
#include "exporter/series/labels/label_cache.h"
#include "exporter/series/series_group.h"
#include "proto/collective.h"
#include "proto/network_state.h"

namespace nccl_exporter::exporter {

class CommunicatorSeries {
 public:
  // Keeps references to the arguments.
  CommunicatorSeries(ExpositionBuilder& builder, LabelCache& labels,
                     const FunctionLabels& functions);

  // Adds the series of a group: all, or those of alerts.
  void AddNamed(const SeriesGroup& group, bool with_detail);

  // Adds the counters and histograms of comm="other". Ranks, progress and identity have no meaning
  // for a sum.
  void AddOther(const SeriesGroup& group);

 private:
  struct Collective {
    const CollectiveLabels& of;
    LabelsId labels;
    std::vector<LabelsId> sizes;  // by CollectiveLabels::sizes
  };

  void Begin(const SeriesGroup& group);
  // Adds a series of the group.
  void Add(Metric metric, double value, LabelsId variable_labels = kNoLabels) {
    builder_.Add(metric, group_labels_, variable_labels, value);
  }
  void AddCount(Metric metric, uint64_t count, LabelsId variable_labels = kNoLabels) {
    Add(metric, static_cast<double>(count), variable_labels);
  }
  void AddSeconds(Metric metric, uint64_t ns, LabelsId variable_labels = kNoLabels) {
    Add(metric, static_cast<double>(ns) / 1e9, variable_labels);
  }
  // Copies sums, which the next scrape changes. The book keeps the others.
  void AddHistogram(Metric metric, LabelsId variable_labels, double sum,
                    std::span<const uint64_t> counts);

  void AddFunctions();
  void AddCollective(const Collective& collective);
  void AddPointToPoint(Function function);
  // Durations by size where they are wanted and known, and those of the rest without `size`.
  // `sizes` are the labels of the size classes.
  void AddDurations(Metric metric, const collector::FunctionSnapshot& counts, LabelsId collective,
                    const LabelsId* sizes);
  void AddArrivals();
  void AddKernelTime(const RankCounts& counts);
  void AddSteps(const StepCounts& steps);
  void AddStepWaits(const StepCounts& steps);
  void AddNode(const NodeCounts& node);
  // Waits of timed network operations, at most ten series. A direction without any has none.
  void AddNetwork();
  // Bus bytes, by which timed bytes are scaled, at most four series: of a direction that was used.
  void AddNetworkBusBytes(const collector::NetworkBusBytes& counts);
  void AddGauges(std::span<const GroupMember* const> in_use);
  void AddOldest(Metric metric, std::span<const GroupMember* const> members);
  void AddStalled(const std::vector<const GroupMember*>& quiet);
  void AddInfo(std::span<const GroupMember* const> in_use);
  void AddApiCalls();

  ExpositionBuilder& builder_;
  LabelCache& labels_;
  const FunctionLabels& functions_;
  // Label `function`, of calls and operations in flight.
  std::array<LabelsId, kFunctionCount> function_labels_{};
  std::vector<Collective> collectives_;
  std::array<LabelsId, kSizeClassCount> size_alone_labels_{};
  std::array<LabelsId, kNetworkDirectionCount> direction_labels_{};
  std::array<std::array<LabelsId, kNetworkStateCount>, kNetworkDirectionCount> state_labels_{};
  // State of the group that is being added.
  const SeriesGroup* group_ = nullptr;
  LabelsId group_labels_ = kNoLabels;
  bool splits_durations_ = false;
};

}  // namespace nccl_exporter::exporter
