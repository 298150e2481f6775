// SPDX-License-Identifier: Apache-2.0
#include "exporter/exposition/exposition.h"

#include "exporter/exposition/protobuf_wire.h"

namespace nccl_exporter::exporter {

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

std::string_view SampleFamilyName(const Family& family) {
  std::string_view name = family.name;
  const std::string_view suffix = family.type == MetricType::kCounter ? "_total"
                                  : family.type == MetricType::kInfo  ? "_info"
                                                                      : "";
  if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return name;
}

bool NameEndsInUnit(std::string_view name, std::string_view unit) {
  return !unit.empty() && name.ends_with(unit) && name.size() > unit.size() &&
         name[name.size() - unit.size() - 1] == '_';
}

void AppendEscaped(std::string_view text, bool escape_quotes, std::string& out) {
  for (const char character : text) {
    if (character == '\\') {
      out += "\\\\";
    } else if (character == '\n') {
      out += "\\n";
    } else if (character == '"' && escape_quotes) {
      out += "\\\"";
    } else {
      out += character;
    }
  }
}

}  // namespace nccl_exporter::exporter
