// SPDX-License-Identifier: Apache-2.0
// Sample lines, which text 0.0.4 and OpenMetrics share but for the spelling of bucket bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/metric_family.h"

namespace nccl_exporter {

// Renders every label set of an exposition once; a sample line is then a few copies and one number.
class SampleText {
 public:
  using SpellBound = std::string (*)(double bound);

  // `exposition` must outlive this object.
  SampleText(const Exposition& exposition, SpellBound spell_bound);

  // Appends the samples of a family of `exposition`.
  void Append(const Family& family, std::string& out) const;

 private:
  std::string_view LabelsText(LabelsId id) const { return labels_[id]; }
  std::string AllLabels(const Series& series) const;
  void AppendScalars(const Family& family, std::string& out) const;
  void AppendHistogram(const Family& family, const Series& series, const std::vector<std::string>& bounds,
                       std::string& out) const;

  SpellBound spell_bound_;
  std::vector<std::string> labels_;  // by LabelsId: a="b",c="d" without braces
};

// Appends `text` as both formats write it in HELP lines and label values: backslash and line feed escaped, and double
// quotes too where `escape_quotes`.
void AppendEscaped(std::string_view text, bool escape_quotes, std::string& out);

}  // namespace nccl_exporter
