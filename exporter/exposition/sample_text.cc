// SPDX-License-Identifier: Apache-2.0
// The inner loop of a scrape: nothing here allocates for a sample.
#include "exporter/exposition/sample_text.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "exporter/exposition/number_text.h"

namespace nccl_exporter {
namespace {

char* Write(char* out, std::string_view text) {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

// Grows `out` by at most `bytes`, which `write` fills from the pointer that it gets to the one that it returns.
template <typename WriteFunction>
void AppendWith(std::string& out, size_t bytes, WriteFunction write) {
  const size_t size = out.size();
  if (out.capacity() < size + bytes) out.reserve(std::max(size + bytes, 2 * out.capacity()));
  out.resize(size + bytes);
  const char* end = write(out.data() + size);
  out.resize(static_cast<size_t>(end - out.data()));
}

}  // namespace

void SampleText::Append(const Family& family, std::string& out) const {
  if (family.type != MetricType::kHistogram) return AppendScalars(family, out);
  std::vector<std::string> bounds;
  for (const double bound : family.scale.bounds) bounds.push_back(spell_bound_(bound));
  for (const Series& series : family.series) AppendHistogram(family, series, bounds, out);
}

void SampleText::AppendScalars(const Family& family, std::string& out) const {
  constexpr size_t kPunctuationBytes = 8;
  for (const Series& series : family.series) {
    const std::string_view subject = LabelsText(series.subject);
    const std::string_view own = LabelsText(series.own);
    const size_t bytes = family.name.size() + subject.size() + own.size() + kPunctuationBytes + kNumberTextBytes;
    AppendWith(out, bytes, [&](char* at) {
      at = Write(at, family.name);
      if (!subject.empty() || !own.empty()) {
        *at++ = '{';
        at = Write(at, subject);
        if (!subject.empty() && !own.empty()) *at++ = ',';
        at = Write(at, own);
        *at++ = '}';
      }
      *at++ = ' ';
      at = WriteNumber(at, series.value);
      *at++ = '\n';
      return at;
    });
  }
}

std::string SampleText::AllLabels(const Series& series) const {
  std::string labels(LabelsText(series.subject));
  const std::string_view own = LabelsText(series.own);
  if (!labels.empty() && !own.empty()) labels += ',';
  return labels += own;
}

void SampleText::AppendHistogram(const Family& family, const Series& series, const std::vector<std::string>& bounds,
                                 std::string& out) const {
  const std::string labels = AllLabels(series);
  const std::string bucket = family.name + "_bucket{" + labels + (labels.empty() ? "" : ",") + "le=\"";
  const std::string tail = labels.empty() ? " " : '{' + labels + "} ";
  const auto append_bucket = [&](std::string_view bound, uint64_t count) {
    constexpr size_t kPunctuationBytes = 8;
    AppendWith(out, bucket.size() + bound.size() + kPunctuationBytes + kNumberTextBytes, [&](char* at) {
      at = Write(at, bucket);
      at = Write(at, bound);
      at = Write(at, "\"} ");
      at = std::to_chars(at, at + kNumberTextBytes, count).ptr;
      *at++ = '\n';
      return at;
    });
  };
  uint64_t count = 0;
  size_t next = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    for (; next < family.scale.ends[i]; ++next) count += series.counts[next];
    append_bucket(bounds[i], count);
  }
  for (; next < series.counts.size(); ++next) count += series.counts[next];
  append_bucket("+Inf", count);

  char sum[kNumberTextBytes];
  out.append(family.name).append("_sum").append(tail).append(sum, WriteNumber(sum, series.value)).append("\n");
  out.append(family.name).append("_count").append(tail).append(std::to_string(count)).append("\n");
}

}  // namespace nccl_exporter
