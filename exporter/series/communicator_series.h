// SPDX-License-Identifier: Apache-2.0
// CommunicatorSeries, the lines that know the value of each metric of a communicator. For the
// thread that makes the scrape.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "exporter/ledger/book.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/function_groups.h"
#include "exporter/series/labels/label_cache.h"
#include "exporter/series/series_group.h"
#include "proto/collective.h"
#include "proto/network_state.h"

namespace nccl_exporter::exporter {

class CommunicatorSeries {
 public:
  // Keeps references to the arguments.
  CommunicatorSeries(ExpositionBuilder& builder, LabelCache& labels,
                     const FunctionGroups& functions);

  // Adds the series of a group: all, or those of alerts.
  void AddNamed(const SeriesGroup& group, bool with_detail);

  // Adds the counters and histograms of comm="other". Ranks, progress and identity have no meaning
  // for a sum.
  void AddOther(const SeriesGroup& group);

 private:
  void AddFunctions(const SeriesGroup& group, LabelsId labels);
  void AddCollective(const SeriesGroup& group, LabelsId labels, const FunctionGroup& functions,
                     const LabelsId* sizes);
  void AddPointToPoint(const SeriesGroup& group, LabelsId labels, const FunctionGroup& functions);
  // Durations by size where they are wanted and known, and those of the rest without `size`.
  // `sizes` are the labels of the size classes.
  void AddDurations(Metric metric, const collector::FunctionSnapshot& counts, LabelsId labels,
                    LabelsId collective, const LabelsId* sizes);
  void AddArrivals(const SeriesGroup& group, LabelsId labels);
  void AddKernelTime(const SeriesGroup& group, const RankCounts& counts, LabelsId labels);
  void AddSteps(const SeriesGroup& group, const StepCounts& steps, LabelsId labels);
  void AddStepWaits(const StepCounts& steps, LabelsId labels);
  void AddNode(const NodeCounts& node, LabelsId labels);
  // Waits of timed network operations, at most ten series. A direction without any has none.
  void AddNetwork(const SeriesGroup& group, LabelsId labels);
  // Bus bytes, by which timed bytes are scaled, at most four series: of a direction that was used.
  void AddNetworkBusBytes(const collector::NetworkBusBytes& counts, LabelsId labels);
  void AddGauges(std::span<const GroupMember* const> in_use, LabelsId labels);
  void AddOldest(Metric metric, std::span<const GroupMember* const> members, LabelsId labels);
  void AddStalled(const std::vector<const GroupMember*>& quiet, LabelsId labels);
  void AddInfo(std::span<const GroupMember* const> in_use, LabelsId labels);
  // Copies the counts that nothing keeps as they are.
  void AddHistogram(Metric metric, LabelsId labels, LabelsId variable_labels, double sum,
                    std::span<const uint64_t> counts);
  void AddApiCalls(const SeriesGroup& group, LabelsId labels);

  ExpositionBuilder& builder_;
  LabelCache& labels_;
  const FunctionGroups& functions_;
  // Label `function`, of calls and operations in flight.
  std::array<LabelsId, kFunctionCount> function_labels_{};
  std::array<LabelsId, kFunctionCount> collective_labels_{};  // label `collective`
  std::vector<LabelsId> size_labels_;  // of all groups of collectives, in order
  std::array<LabelsId, kSizeClassCount> size_alone_labels_{};
  std::array<LabelsId, kNetworkDirectionCount> direction_labels_{};
  std::array<std::array<LabelsId, kNetworkStateCount>, kNetworkDirectionCount> state_labels_{};
  // State of the group that is being added.
  bool splits_durations_ = false;
  bool is_kept_ = false;  // the book keeps the counts of its histograms
};

}  // namespace nccl_exporter::exporter
