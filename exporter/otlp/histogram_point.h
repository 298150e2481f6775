// SPDX-License-Identifier: Apache-2.0
// Histograms of a scrape as fields of data points of OTLP. Pure functions of untrusted bytes.
#pragma once

#include <string>
#include <string_view>

namespace nccl_exporter::exporter::otlp {

// Whether a message Histogram of a scrape has native buckets.
bool HasNativeBuckets(std::string_view histogram);

// Append count, sum and buckets of the histogram. The count is always the sum of the buckets. False
// where the buckets are none: not ascending, or too many.
bool AppendExplicit(std::string_view histogram, std::string& point);
bool AppendExponential(std::string_view histogram, std::string& point);

}  // namespace nccl_exporter::exporter::otlp
