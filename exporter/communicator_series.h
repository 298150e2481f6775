// SPDX-License-Identifier: Apache-2.0
// The lines that know the value of each metric of a communicator.
#pragma once

#include <array>

#include "exporter/exposition_builder.h"
#include "exporter/subject_table.h"
#include "proto/collective.h"

namespace nccl_exporter {

class CommunicatorSeries {
 public:
  // Both outlive this object.
  CommunicatorSeries(ExpositionBuilder& builder, LabelCache& labels);

  // Everything known of a communicator.
  void AddNamed(const Subject& subject);

  // Counters and histograms of comm="other": ranks, progress and identity of a sum mean nothing.
  void AddOther(const Subject& subject);

 private:
  void AddFunctions(const Subject& subject, LabelsId labels);
  void AddCollective(const Subject& subject, LabelsId labels, Function function);
  void AddPointToPoint(const Subject& subject, LabelsId labels, Function function);
  void AddArrivals(const Subject& subject, LabelsId labels);
  void AddGauges(const CommunicatorSnapshot& communicator, LabelsId labels);
  void AddHistogram(Metric metric, const Subject& subject, LabelsId labels, LabelsId own, Function function);

  ExpositionBuilder& builder_;
  LabelCache& labels_;
  std::array<LabelsId, kFunctionCount> function_labels_{};                                    // collective
  std::array<std::array<LabelsId, kSizeClassCount>, kFunctionCount> function_size_labels_{};  // collective, size
};

}  // namespace nccl_exporter
