// SPDX-License-Identifier: Apache-2.0
// The lines that know the value of each metric of a communicator.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "exporter/series/exposition_builder.h"
#include "exporter/series/series_memory.h"
#include "exporter/series/subject.h"
#include "proto/collective.h"

namespace nccl_exporter {

class CommunicatorSeries {
 public:
  // Both outlive this object.
  CommunicatorSeries(ExpositionBuilder& builder, SeriesMemory& memory);

  // Everything known of a communicator.
  void AddNamed(const Subject& subject);

  // Counters and histograms of comm="other": ranks, progress and identity of a sum mean nothing.
  void AddOther(const Subject& subject);

 private:
  void AddFunctions(const Subject& subject, LabelsId labels);
  void AddCollective(const Subject& subject, LabelsId labels, const FunctionGroup& group, const LabelsId* sizes,
                     const LabelsId* phases);
  void AddPhases(const Subject& subject, LabelsId labels, const FunctionGroup& group, const LabelsId* phases);
  void AddPointToPoint(const Subject& subject, LabelsId labels, const FunctionGroup& group);
  void AddArrivals(const Subject& subject, LabelsId labels);
  void AddGauges(std::span<const Member* const> in_use, LabelsId labels);
  void AddInfo(std::span<const Member* const> in_use, LabelsId labels);
  void AddHistogram(Metric metric, const Subject& subject, LabelsId labels, const FunctionGroup& group);
  LabelsId CollectiveLabelsOf(const FunctionGroup& group) const;

  ExpositionBuilder& builder_;
  SeriesMemory& memory_;
  std::array<LabelsId, kFunctionCount> function_labels_{};    // label `function`, of calls and operations in flight
  std::array<LabelsId, kFunctionCount> collective_labels_{};  // label `collective`
  std::vector<LabelsId> size_labels_;                         // of the groups of collectives, one after the other
  std::vector<LabelsId> phase_labels_;                        // likewise
};

}  // namespace nccl_exporter
