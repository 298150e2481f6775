// SPDX-License-Identifier: Apache-2.0
// GoldenText, the example snapshot in both forms of text. Tests compare each whole with a
// file in testdata.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "exporter/exposition/encoder.h"
#include "exporter/series/metric_filter.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {

struct GoldenText {
  std::string_view file;  // in exporter/series/testdata
  std::string (*text)();
};

inline std::string ExampleAs(Format format) {
  Exposition exposition = ExpositionOfCatalogue();
  SeriesMemory memory;
  AddSnapshotFamilies(ExampleBook(), kSeriesLimit, memory, exposition);
  std::string text;
  Encode(format, exposition, text);
  return text;
}

inline std::string ExampleAsText() { return ExampleAs(Format::kText); }

inline std::string ExampleAsOpenMetrics() { return ExampleAs(Format::kOpenMetrics); }

inline constexpr std::array<GoldenText, 2> kGoldenTexts{{
    {"scrape.txt", ExampleAsText},
    {"scrape.openmetrics.txt", ExampleAsOpenMetrics},
}};

}  // namespace nccl_exporter::exporter
