// SPDX-License-Identifier: Apache-2.0
// Encode(), and the two text formats.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/number_text.h"

namespace nccl_exporter::exporter {
namespace {

// Grows `out` by at most `bytes`. `write` gets a pointer to them and returns the end of what it
// wrote. It must not write more than `bytes`: nothing checks it, because a check per character
// would be most of the cost.
template <typename WriteFunction>
void AppendWith(std::string& out, size_t bytes, WriteFunction write) {
  const size_t size = out.size();
  if (out.capacity() < size + bytes) out.reserve(std::max(size + bytes, 2 * out.capacity()));
  out.resize(size + bytes);
  const char* end = write(out.data() + size);
  out.resize(static_cast<size_t>(end - out.data()));
}

std::string_view LabelsText(const Exposition& exposition, LabelsId id) {
  return exposition.labels[id]->text();
}

// This is the inner loop of a scrape: a sample is a few copies (label sets are rendered before) and
// one number, and allocates nothing.
void AppendScalars(const Exposition& exposition, const Family& family, std::string& out) {
  constexpr size_t kPunctuationBytes = 8;  // braces, comma, space and line feed are 5
  for (const Series& series : family.series) {
    const std::string_view group = LabelsText(exposition, series.group_labels);
    const std::string_view variable = LabelsText(exposition, series.variable_labels);
    const size_t bytes =
        family.name.size() + group.size() + variable.size() + kPunctuationBytes + kNumberTextBytes;
    AppendWith(out, bytes, [&](char* at) {
      at = WriteText(at, family.name);
      if (!group.empty() || !variable.empty()) {
        *at++ = '{';
        at = WriteText(at, group);
        if (!group.empty() && !variable.empty()) *at++ = ',';
        at = WriteText(at, variable);
        *at++ = '}';
      }
      *at++ = ' ';
      at = WriteNumber(at, series.value);
      *at++ = '\n';
      return at;
    });
  }
}

void AppendHistogram(const Exposition& exposition, const Family& family, const Series& series,
                     const std::vector<std::string>& bounds, std::string& out) {
  std::string labels(LabelsText(exposition, series.group_labels));
  const std::string_view variable = LabelsText(exposition, series.variable_labels);
  if (!labels.empty() && !variable.empty()) labels += ',';
  labels += variable;
  const std::string bucket =
      family.name + "_bucket{" + labels + (labels.empty() ? "" : ",") + "le=\"";
  const std::string tail = labels.empty() ? " " : '{' + labels + "} ";
  const auto append_bucket = [&](std::string_view bound, uint64_t count) {
    constexpr size_t kPunctuationBytes = 8;  // quote, brace, space and line feed are 4
    AppendWith(out, bucket.size() + bound.size() + kPunctuationBytes + kNumberTextBytes,
               [&](char* at) {
                 at = WriteText(at, bucket);
                 at = WriteText(at, bound);
                 at = WriteText(at, "\"} ");
                 at = std::to_chars(at, at + kNumberTextBytes, count).ptr;
                 *at++ = '\n';
                 return at;
               });
  };
  // Buckets of the text formats are cumulative, Series::counts are not.
  uint64_t count = 0;
  size_t next = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    for (; next < family.scale.ends[i]; ++next) count += series.counts[next];
    append_bucket(bounds[i], count);
  }
  for (; next < series.counts.size(); ++next) count += series.counts[next];
  append_bucket("+Inf", count);

  char sum[kNumberTextBytes];
  out.append(family.name)
      .append("_sum")
      .append(tail)
      .append(sum, WriteNumber(sum, series.value))
      .append("\n");
  out.append(family.name).append("_count").append(tail).append(std::to_string(count)).append("\n");
}

// The samples of a family, which both formats share except for the spelling of bucket bounds.
void AppendSamples(const Exposition& exposition, const Family& family,
                   std::string (*spell_bound)(double), std::string& out) {
  if (family.type != MetricType::kHistogram) return AppendScalars(exposition, family, out);
  std::vector<std::string> bounds;
  for (const double bound : family.scale.bounds) bounds.push_back(spell_bound(bound));
  for (const Series& series : family.series)
    AppendHistogram(exposition, family, series, bounds, out);
}

// A line that begins with a keyword and the name of a family.
void AppendLine(std::string_view keyword, std::string_view name, std::string_view text,
                std::string& out) {
  out.append("# ").append(keyword).append(" ").append(name).append(" ").append(text).append("\n");
}

std::string Escaped(std::string_view text, bool escape_quotes) {
  std::string escaped;
  AppendEscaped(text, escape_quotes, escaped);
  return escaped;
}

std::string_view TypeName(MetricType type) {
  if (type == MetricType::kCounter) return "counter";
  return type == MetricType::kHistogram ? "histogram" : "gauge";
}

// A family with its samples, in one of the formats.
using AppendFamily = void (*)(const Exposition& exposition, const Family& family, std::string& out);

void AppendText(const Exposition& exposition, const Family& family, std::string& out) {
  AppendLine("HELP", family.name, Escaped(family.help, false), out);
  AppendLine("TYPE", family.name, TypeName(family.type), out);
  AppendSamples(exposition, family, BoundText, out);
}

void AppendOpenMetrics(const Exposition& exposition, const Family& family, std::string& out) {
  const std::string_view name = SampleFamilyName(family);
  AppendLine("TYPE", name, family.type == MetricType::kInfo ? "info" : TypeName(family.type), out);
  if (NameEndsInUnit(name, family.unit)) AppendLine("UNIT", name, family.unit, out);
  AppendLine("HELP", name, Escaped(family.help, true), out);
  AppendSamples(exposition, family, CanonicalBoundText, out);
}

void AppendFamilies(const Exposition& exposition, AppendFamily append, std::string& out) {
  for (const Family& family : exposition.families) {
    if (!family.series.empty()) append(exposition, family, out);
  }
}

}  // namespace

void Encode(Format format, const Exposition& exposition, std::string& out) {
  switch (format) {
    case Format::kText:
      return AppendFamilies(exposition, AppendText, out);
    case Format::kOpenMetrics:
      AppendFamilies(exposition, AppendOpenMetrics, out);
      out.append("# EOF\n");
      return;
    case Format::kProtobuf:
      return EncodeProtobuf(exposition, out);
  }
}

}  // namespace nccl_exporter::exporter
