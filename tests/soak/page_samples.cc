// SPDX-License-Identifier: Apache-2.0
// Text and OpenMetrics line by line, as fast as 10 pages a second want it; protobuf with protoc's
// code.
#include "tests/soak/page_samples.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "exporter/testing/decoded_families.h"

namespace nccl_exporter::soak {
namespace {

using Take = std::function<void(const PageSample&)>;

struct FormatTraits {
  PageFormat id;
  std::string_view name;
  std::string_view accept;
  std::string_view content_type;  // without parameters
};

constexpr FormatTraits kFormats[] = {
    {PageFormat::kText, "text", "Accept: text/plain;version=0.0.4", "text/plain"},
    {PageFormat::kOpenMetrics, "OpenMetrics", "Accept: application/openmetrics-text;version=1.0.0",
     "application/openmetrics-text"},
    {PageFormat::kProtobuf, "protobuf",
     "Accept: "
     "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
     "application/vnd.google.protobuf"},
};

const FormatTraits& TraitsOf(PageFormat format) {
  return *std::ranges::find(kFormats, format, &FormatTraits::id);
}

bool OnlyGrows(std::string_view type) { return type == "counter" || type == "histogram"; }

// Both text formats; no sample of the daemon has a time of its own.
bool ReadLines(std::string_view page, const Take& take) {
  constexpr std::string_view kType = "# TYPE ";
  bool only_grows = false;
  while (!page.empty()) {
    const size_t end = page.find('\n');
    if (end == std::string_view::npos) return false;
    const std::string_view line = page.substr(0, end);
    page.remove_prefix(end + 1);
    const size_t space = line.rfind(' ');
    if (line.starts_with(kType)) only_grows = OnlyGrows(line.substr(space + 1));
    if (line.starts_with('#')) continue;
    if (space == std::string_view::npos) return false;
    PageSample sample{.key = line.substr(0, space), .only_grows = only_grows};
    const std::string_view value = line.substr(space + 1);
    const auto [stop, error] =
        std::from_chars(value.data(), value.data() + value.size(), sample.value);
    if (stop != value.data() + value.size() && value != "+Inf" && value != "-Inf" && value != "NaN")
      return false;
    take(sample);
  }
  return true;
}

double Seconds(const exporter::decoded::Timestamp& time) {
  return static_cast<double>(time.seconds()) + 1e-9 * static_cast<double>(time.nanos());
}

// The sample's name in the words of the text format.
void AppendKey(const std::string& family, const exporter::decoded::Metric& metric,
               std::string* key) {
  key->assign(family);
  for (const exporter::decoded::LabelPair& label : metric.label()) {
    *key += key->size() == family.size() ? '{' : ',';
    *key += label.name();
    *key += "=\"";
    *key += label.value();
    *key += '"';
  }
}

void TakeHistogram(const exporter::decoded::Histogram& histogram, std::string* key,
                   const Take& take) {
  const size_t length = key->size();
  const double created =
      histogram.has_created_timestamp() ? Seconds(histogram.created_timestamp()) : 0;
  const auto take_part = [&](std::string_view part, double value) {
    key->resize(length);
    *key += part;
    take({.key = *key, .value = value, .only_grows = true, .created_seconds = created});
  };
  take_part("#count", static_cast<double>(histogram.sample_count()));
  take_part("#sum", histogram.sample_sum());
  take_part("#zero", static_cast<double>(histogram.zero_count()));
  for (const exporter::decoded::Bucket& bucket : histogram.bucket()) {
    take_part("#le" + std::to_string(bucket.upper_bound()),
              static_cast<double>(bucket.cumulative_count()));
  }
  const std::string schema = "#schema" + std::to_string(histogram.schema()) + ":";
  for (const auto& [index, count] : exporter::NativeBuckets(histogram)) {
    take_part(schema + std::to_string(index), static_cast<double>(count));
  }
}

bool ReadMessages(std::string_view page, const Take& take) {
  std::string key;
  google::protobuf::io::ArrayInputStream input(page.data(), static_cast<int>(page.size()));
  for (bool is_end = false;;) {
    exporter::decoded::MetricFamily family;
    if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(&family, &input, &is_end))
      return is_end;
    for (const exporter::decoded::Metric& metric : family.metric()) {
      AppendKey(family.name(), metric, &key);
      if (metric.has_histogram()) {
        TakeHistogram(metric.histogram(), &key, take);
      } else if (metric.has_counter()) {
        const exporter::decoded::Counter& counter = metric.counter();
        const double created =
            counter.has_created_timestamp() ? Seconds(counter.created_timestamp()) : 0;
        take(
            {.key = key, .value = counter.value(), .only_grows = true, .created_seconds = created});
      } else {
        take({.key = key, .value = metric.gauge().value()});
      }
    }
  }
}

}  // namespace

std::string_view Name(PageFormat format) { return TraitsOf(format).name; }
std::string_view AcceptHeader(PageFormat format) { return TraitsOf(format).accept; }
std::string_view ContentType(PageFormat format) { return TraitsOf(format).content_type; }

bool ReadPage(PageFormat format, std::string_view page, const Take& take) {
  if (page.empty()) return false;
  if (format == PageFormat::kProtobuf) return ReadMessages(page, take);
  return (format == PageFormat::kText || page.ends_with("\n# EOF\n")) && ReadLines(page, take);
}

}  // namespace nccl_exporter::soak
