// SPDX-License-Identifier: Apache-2.0
// Sample lines, which text 0.0.4 and OpenMetrics share but for the spelling of bucket bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/exposition/metric_family.h"

namespace nccl_exporter {

// A sample line is a few copies (label sets come rendered) and one number.
class SampleText {
 public:
  using SpellBound = std::string (*)(double bound);

  // `exposition` must outlive this object.
  SampleText(const Exposition& exposition, SpellBound spell_bound)
      : exposition_(exposition), spell_bound_(spell_bound) {}

  // Appends the samples of a family of `exposition`.
  void Append(const Family& family, std::string& out) const;

 private:
  std::string_view LabelsText(LabelsId id) const { return exposition_.labels[id]->text(); }
  std::string AllLabels(const Series& series) const;
  void AppendScalars(const Family& family, std::string& out) const;
  void AppendHistogram(const Family& family, const Series& series, const std::vector<std::string>& bounds,
                       std::string& out) const;

  const Exposition& exposition_;
  SpellBound spell_bound_;
};

}  // namespace nccl_exporter
