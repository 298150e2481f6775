// SPDX-License-Identifier: Apache-2.0
// Lists with parameters and q values (RFC 9110, 12.4 and 12.5), read leniently: an entry that makes
// no sense is skipped.
#include "exporter/exposition/negotiation.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>

#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter {
namespace {

struct Preference {
  std::string_view name;     // media range or coding
  std::string_view version;  // the parameters of these names, or empty
  std::string_view proto;
  std::string_view encoding;
  double quality = 1;
};

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Takes the next part off `rest`; parts are separated by `separator`. Quoted strings, which no
// known scraper sends, are not understood: a separator within one splits it.
std::string_view TakePart(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return Trim(part);
}

// A decimal number without exponent.
std::optional<double> NumberOf(std::string_view text) {
  return NumberIn<double>(text, std::chars_format::fixed);
}

// 0 for what is no number from 0 to 1: Prometheus 2.49.0 sends q=2 with its last choice, which must
// not become the first.
double QualityOf(std::string_view text) {
  const double quality = NumberOf(text).value_or(0);
  return quality >= 0 && quality <= 1 ? quality : 0;
}

Preference ParsePreference(std::string_view entry) {
  Preference preference{
      .name = TakePart(entry, ';'), .version = {}, .proto = {}, .encoding = {}, .quality = 1};
  while (!entry.empty()) {
    std::string_view value = TakePart(entry, ';');
    const std::string_view key = TakePart(value, '=');
    if (EqualsIgnoringCase(key, "q")) preference.quality = QualityOf(Trim(value));
    if (EqualsIgnoringCase(key, "version")) preference.version = Trim(value);
    if (EqualsIgnoringCase(key, "proto")) preference.proto = Trim(value);
    if (EqualsIgnoringCase(key, "encoding")) preference.encoding = Trim(value);
  }
  return preference;
}

std::optional<Format> FormatOf(const Preference& preference) {
  const auto is = [&](std::string_view name) { return EqualsIgnoringCase(preference.name, name); };
  if (is("application/vnd.google.protobuf") &&
      preference.proto == "io.prometheus.client.MetricFamily" && preference.encoding == "delimited")
    return Format::kProtobuf;
  if (is("application/openmetrics-text") &&
      (preference.version.empty() || preference.version == "1.0.0"))
    return Format::kOpenMetrics;
  const bool is_text = is("text/plain") || is("text/*") || is("*/*");
  return is_text ? std::optional(Format::kText) : std::nullopt;
}

}  // namespace

Format NegotiateFormat(std::string_view accept) {
  Format best = Format::kText;
  double best_quality = 0;
  while (!accept.empty()) {
    const Preference preference = ParsePreference(TakePart(accept, ','));
    const std::optional<Format> format = FormatOf(preference);
    if (format && preference.quality > best_quality) {
      best = *format;
      best_quality = preference.quality;
    }
  }
  return best;
}

std::string_view ContentType(Format format) {
  switch (format) {
    case Format::kProtobuf:
      return "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
             "encoding=delimited";
    case Format::kOpenMetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case Format::kText:
      break;
  }
  return "text/plain; version=0.0.4; charset=utf-8";
}

std::optional<std::chrono::nanoseconds> ScrapeBudget(std::string_view timeout_seconds) {
  constexpr double kWayBackSeconds = 0.5;
  constexpr double kLongestSeconds = 86400;  // more is as good as none
  const std::optional<double> seconds = NumberOf(Trim(timeout_seconds));
  if (!seconds || !(*seconds > 0) || *seconds > kLongestSeconds) return std::nullopt;
  const double budget = std::max(*seconds - kWayBackSeconds, *seconds / 2);
  return std::chrono::nanoseconds(static_cast<int64_t>(budget * 1e9));
}

bool AcceptsGzip(std::string_view accept_encoding) {
  std::optional<double> gzip;
  double any = 0;
  while (!accept_encoding.empty()) {
    const Preference preference = ParsePreference(TakePart(accept_encoding, ','));
    if (EqualsIgnoringCase(preference.name, "gzip")) gzip = preference.quality;
    if (preference.name == "*") any = preference.quality;
  }
  return gzip.value_or(any) > 0;
}

}  // namespace nccl_exporter::exporter
