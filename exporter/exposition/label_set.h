// SPDX-License-Identifier: Apache-2.0
// Labels together with what the formats make of them: rendered once, however many series and scrapes they are part of.
#pragma once

#include <compare>
#include <memory>
#include <string>
#include <vector>

namespace nccl_exporter {

struct Label {
  std::string name;
  std::string value;

  auto operator<=>(const Label&) const = default;
};
using Labels = std::vector<Label>;

// Immutable, so that scrapes on any threads share it.
class LabelSet {
 public:
  explicit LabelSet(Labels labels);

  const Labels& labels() const { return labels_; }
  const std::string& text() const { return text_; }          // a="b",c="d" without braces
  const std::string& protobuf() const { return protobuf_; }  // the label fields of a Metric message

 private:
  Labels labels_;
  std::string text_;
  std::string protobuf_;
};

using SharedLabels = std::shared_ptr<const LabelSet>;

}  // namespace nccl_exporter
