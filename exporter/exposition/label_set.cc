// SPDX-License-Identifier: Apache-2.0
// Both renderings of a label set.
#include "exporter/exposition/label_set.h"

#include <utility>

#include "exporter/exposition/escaped_text.h"
#include "exporter/exposition/protobuf_wire.h"

namespace nccl_exporter {

LabelSet::LabelSet(Labels labels) : labels_(std::move(labels)) {
  constexpr uint32_t kLabelField = 1;  // of Metric
  constexpr uint32_t kNameField = 1;   // of LabelPair
  constexpr uint32_t kValueField = 2;
  std::string pair;
  for (const Label& label : labels_) {
    if (!text_.empty()) text_ += ',';
    text_ += label.name;
    text_ += "=\"";
    AppendEscaped(label.value, true, text_);
    text_ += '"';

    pair.clear();
    wire::AppendBytes(kNameField, label.name, pair);
    wire::AppendBytes(kValueField, label.value, pair);
    wire::AppendBytes(kLabelField, pair, protobuf_);
  }
}

}  // namespace nccl_exporter
