// SPDX-License-Identifier: Apache-2.0
// The example snapshot, encoded.
#include "exporter/testing/golden_text.h"

#include "exporter/catalogue/metric_filter.h"
#include "exporter/commands/segment_dump.h"
#include "exporter/exposition/encoder.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter {
namespace {

std::string Encoded(const Encoder& encoder) {
  Exposition exposition = ExpositionOfCatalogue();
  SeriesMemory memory;
  AddSnapshotFamilies(ExampleSnapshot(), kSeriesLimit, memory, exposition);
  std::string text;
  encoder.Encode(exposition, text);
  return text;
}

}  // namespace

std::string ExampleAsText() { return Encoded(TextEncoder()); }

std::string ExampleAsOpenMetrics() { return Encoded(OpenMetricsEncoder()); }

std::string ExampleAsDump() { return DumpText(ExampleSnapshot()->processes.front()); }

}  // namespace nccl_exporter
