// SPDX-License-Identifier: Apache-2.0
// Compares the tables of the documents with the code that they describe. A difference prints the
// table as it should be.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>

#include "proto/droppable_labels.h"
#include "proto/metric_catalogue.h"
#include "proto/shm_layout.h"

namespace nccl_exporter {
namespace {

std::string Content(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void ExpectTable(const std::string& document, const std::string& table) {
  EXPECT_NE(Content(document).find(table), std::string::npos) << document << " should contain:\n"
                                                              << table;
}

std::string Row(const char* field, size_t offset, size_t size) {
  return "| " + std::to_string(offset) + " | " + std::to_string(size) + " | `" + field + "` |\n";
}

constexpr char kHead[] = "| offset | bytes | field |\n|---:|---:|---|\n";

#define FIELD(type, field) Row(#field, offsetof(layout::type, field), sizeof(layout::type::field))

TEST(LayoutDocument, IsOfThisVersion) {
  const std::string version = std::to_string(layout::kMajor) + '.' + std::to_string(layout::kMinor);
  const std::string text = Content("proto/README.md");
  EXPECT_NE(text.find("## Layout of the segment, version " + version + '\n'), std::string::npos);
  EXPECT_NE(text.find("\"1.1\" to \"" + version + "\" mark fields"), std::string::npos);
}

TEST(LayoutDocument, ShowsTheHeader) {
  ExpectTable("proto/README.md",
              kHead + FIELD(SegmentHeader, version) + FIELD(SegmentHeader, magic) +
                  FIELD(SegmentHeader, header_bytes) + FIELD(SegmentHeader, slot_bytes) +
                  FIELD(SegmentHeader, slot_count) + FIELD(SegmentHeader, file_bytes) +
                  FIELD(SegmentHeader, pid) + FIELD(SegmentHeader, uid) +
                  FIELD(SegmentHeader, start_realtime_ns) +
                  FIELD(SegmentHeader, start_monotonic_ns) + FIELD(SegmentHeader, identity_count) +
                  FIELD(SegmentHeader, retention_ns) + FIELD(SegmentHeader, plugin_version) +
                  FIELD(SegmentHeader, host_name) + FIELD(SegmentHeader, executable) +
                  FIELD(SegmentHeader, losses) + FIELD(SegmentHeader, rank_numbers_process) +
                  FIELD(SegmentHeader, first_communicator) + FIELD(SegmentHeader, chain) +
                  FIELD(SegmentHeader, identity));
}

TEST(LayoutDocument, ShowsTheCommunicatorSlot) {
  ExpectTable(
      "proto/README.md",
      kHead + FIELD(CommunicatorSlot, state) + FIELD(CommunicatorSlot, communicator_id) +
          FIELD(CommunicatorSlot, ranks) + FIELD(CommunicatorSlot, rank) +
          FIELD(CommunicatorSlot, nodes) + FIELD(CommunicatorSlot, api_version) +
          FIELD(CommunicatorSlot, nccl_version) + FIELD(CommunicatorSlot, event_mask) +
          FIELD(CommunicatorSlot, timing_source) + FIELD(CommunicatorSlot, timing_reason) +
          FIELD(CommunicatorSlot, gpu_index) + FIELD(CommunicatorSlot, created_realtime_ns) +
          FIELD(CommunicatorSlot, created_monotonic_ns) +
          FIELD(CommunicatorSlot, closed_monotonic_ns) + FIELD(CommunicatorSlot, has_identity) +
          FIELD(CommunicatorSlot, name) + FIELD(CommunicatorSlot, gpu_uuid) +
          FIELD(CommunicatorSlot, pci_bus_id) + FIELD(CommunicatorSlot, drift_cause) +
          FIELD(CommunicatorSlot, probation_launches) + FIELD(CommunicatorSlot, functions) +
          FIELD(CommunicatorSlot, in_flight) + FIELD(CommunicatorSlot, completions) +
          FIELD(CommunicatorSlot, size_histograms) + FIELD(CommunicatorSlot, network) +
          FIELD(CommunicatorSlot, global_rank) + FIELD(CommunicatorSlot, local_rank) +
          FIELD(CommunicatorSlot, world_size));
}

TEST(LayoutDocument, ShowsTheFunctionBlock) {
  ExpectTable("proto/README.md",
              kHead + FIELD(FunctionBlock, calls) + FIELD(FunctionBlock, last_start_ns) +
                  FIELD(FunctionBlock, network_timed_bytes) +
                  FIELD(FunctionBlock, started.operations) + FIELD(FunctionBlock, started.bytes) +
                  FIELD(FunctionBlock, timed.timed_operations) +
                  FIELD(FunctionBlock, timed.timed_bytes) + FIELD(FunctionBlock, timed.busy_ns) +
                  FIELD(FunctionBlock, completed) + FIELD(FunctionBlock, last_completion_ns) +
                  FIELD(FunctionBlock, bandwidth_sum_kib) + FIELD(FunctionBlock, duration) +
                  FIELD(FunctionBlock, bandwidth));
  ExpectTable("proto/README.md",
              kHead + FIELD(SizeHistogram, owner) + FIELD(SizeHistogram, duration));
}

TEST(LayoutDocument, ShowsTheNetworkBlock) {
  ExpectTable("proto/README.md",
              kHead + FIELD(NetworkBlock, directions) + FIELD(NetworkBlock, share_ppm));
  ExpectTable("proto/README.md", kHead + FIELD(NetworkDirectionBlock, wait_ns) +
                                     FIELD(NetworkDirectionBlock, bytes) +
                                     FIELD(NetworkDirectionBlock, operations));
}

TEST(LayoutDocument, ShowsTheRings) {
  ExpectTable("proto/README.md",
              kHead + FIELD(InFlightEntry, ticket) + FIELD(InFlightEntry, function) +
                  FIELD(InFlightEntry, sequence) + FIELD(InFlightEntry, start_ns) +
                  FIELD(InFlightEntry, bytes) + FIELD(InFlightEntry, parts) +
                  FIELD(InFlightEntry, last_part_ns) + FIELD(InFlightEntry, peer));
  ExpectTable("proto/README.md",
              kHead + FIELD(CompletionEntry, ticket) +
                  FIELD(CompletionEntry, function_and_sequence) + FIELD(CompletionEntry, call_ns) +
                  FIELD(CompletionEntry, start_ns) + FIELD(CompletionEntry, stop_ns) +
                  FIELD(CompletionEntry, delivered_ns) + FIELD(CompletionEntry, bytes) +
                  FIELD(CompletionEntry, members));
}

template <typename Rows>
void ExpectCodes(const std::string& heading, const Rows& rows) {
  std::string table = "### " + heading + "\n\n| code | name | meaning |\n|---:|---|---|\n";
  for (const auto& row : rows) {
    table += "| " + std::to_string(static_cast<int>(row.id)) + " | `" + std::string(row.name) +
             "` | " + std::string(row.meaning) + " |\n";
  }
  ExpectTable("proto/README.md", table + '\n');
}

TEST(CodeDocument, ListsEveryFunction) {
  const auto factor = [](BusFactor of) {
    return of == BusFactor::kOne         ? "1"
           : of == BusFactor::kShare     ? "(n-1)/n"
           : of == BusFactor::kUndefined ? "none"
                                         : "2(n-1)/n";
  };
  std::string table =
      "### Function (`Function`)\n\n| code | name | message bytes | bus factor "
      "|\n|---:|---|---|---|\n";
  for (const FunctionTraits& row : kFunctions) {
    table += "| " + std::to_string(static_cast<int>(row.id)) + " | `" + std::string(row.name) +
             "` | " +
             (row.size_counts_ranks ? "n * count * element size" : "count * element size") + " | " +
             factor(row.bus_factor) + " |\n";
  }
  ExpectTable("proto/README.md", table + '\n');
}

TEST(CodeDocument, ListsEverySizeClass) {
  std::string table = "### Size class (`SizeClass`)\n\n| code | name |\n|---:|---|\n";
  for (size_t i = 0; i < kSizeClassBounds.size(); ++i) {
    table += "| " + std::to_string(i) + " | `" + std::to_string(kSizeClassBounds[i]) + "` |\n";
  }
  ExpectTable("proto/README.md", table + '\n');
}

template <typename Buckets>
std::string HistogramRow(const char* field, const char* unit) {
  return std::string("| `") + field + "` | " + unit + " | " + std::to_string(Buckets::kCount) +
         " | " + std::to_string(Buckets::kFirstBound) + " | " +
         std::to_string(Buckets::kLastBound) + " |\n";
}

TEST(CodeDocument, ShowsTheBoundsOfHistograms) {
  ExpectTable(
      "proto/README.md",
      "| field | unit | counts in use | first bound | last bound |\n|---|---|---:|---:|---:|\n" +
          HistogramRow<DurationBuckets>("duration", "seconds") +
          HistogramRow<BandwidthBuckets>("bandwidth", "bytes per second") + '\n');
}

TEST(CodeDocument, ListsEveryStateOfASlot) {
  using layout::SlotState;
  ExpectCodes(
      "State of a slot (`SlotState`)",
      std::array<CodeRow<SlotState>, 4>{{
          {SlotState::kFree, "free", "never used; no slot behind it is in use but the last one"},
          {SlotState::kClaimed, "claimed", "being written: not to be read"},
          {SlotState::kLive, "live", "in use"},
          {SlotState::kClosed, "closed", "finalized; it may be claimed again"},
      }});
}

TEST(CodeDocument, ListsTheCodesOfTiming) {
  ExpectCodes("Timing source (`TimingSource`)", kTimingSources);
  ExpectCodes("Timing reason (`TimingReason`)", kTimingReasons);
  ExpectCodes("Cause of drift (`DriftCause`)", kDriftCauses);
  ExpectCodes("State of network time (`NetworkState`)", kNetworkStates);
  ExpectCodes("Direction of network time (`NetworkDirection`)", kNetworkDirections);
}

TEST(CodeDocument, ListsEveryCauseOfLoss) {
  std::string table = "### Cause of a loss (`Loss`)\n\n| code | name | kind |\n|---:|---|---|\n";
  for (const LossTraits& row : kLosses) {
    table += "| " + std::to_string(static_cast<int>(row.id)) + " | `" + std::string(row.reason) +
             "` | " + std::string(NameOf(row.kind)) + " |\n";
  }
  ExpectTable("proto/README.md", table + '\n');
}

TEST(MetricDocument, ListsEveryMetricOfTheCatalogue) {
  std::string table = "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricRow& row : kMetrics) {
    std::string labels = row.scope == LabelScope::kCommunicator ? "L"
                         : row.scope == LabelScope::kProcess    ? "P"
                                                                : "";
    if (!row.labels.empty()) labels += (labels.empty() ? "" : ", ") + std::string(row.labels);
    for (size_t at = 0; (at = labels.find(',', at)) != std::string::npos; ++at) {
      if (labels[at + 1] != ' ') labels.insert(at + 1, " ");
    }
    table += "| `" + std::string(row.name) + "` | " +
             std::string(RowIn(kMetricTypes, row.type).name) +
             (row.part == MetricPart::kAlerts ? ", alerts" : "") + " | " + labels + " | " +
             std::string(row.help) + " |\n";
  }
  ExpectTable("docs/metrics.md", table);
}

TEST(MetricDocument, SaysWhatBecomesOfSeriesWithoutALabel) {
  std::string table = "| label | what is one series without it | shipped rules |\n|---|---|---|\n";
  for (const DroppableLabel& label : kDroppableLabels) {
    table += "| `" + std::string(label.name) + "` | " + std::string(label.meaning) + " | " +
             (label.is_needed_by_rules ? "need it" : "") + " |\n";
  }
  ExpectTable("docs/tune.md", table);
}

TEST(LossDocument, ListsEveryCause) {
  std::string table = "| `reason` | counter | meaning |\n|---|---|---|\n";
  for (const LossTraits& loss : kLosses) {
    const std::string_view kind = loss.kind == LossKind::kDropped     ? "dropped"
                                  : loss.kind == LossKind::kUnmatched ? "unmatched"
                                                                      : "timestamps rejected";
    table += "| `" + std::string(loss.reason) + "` | " + std::string(kind) + " | " +
             std::string(loss.meaning) + " |\n";
  }
  ExpectTable("docs/metrics.md", table);
}

TEST(MetricCatalogue, KeepsToTheNamingRules) {
  for (const MetricRow& row : kMetrics) {
    EXPECT_TRUE(row.name.starts_with("nccl_") || row.name.starts_with("process_")) << row.name;
    EXPECT_EQ(row.type == MetricType::kCounter, row.name.ends_with("_total")) << row.name;
    EXPECT_EQ(row.type == MetricType::kInfo, row.name.ends_with("_info")) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    std::string_view stem = row.name;
    if (row.type == MetricType::kCounter) stem.remove_suffix(6);
    if (!row.unit.empty()) {
      EXPECT_TRUE(stem.ends_with(row.unit)) << row.name;
    }
  }
}

}  // namespace
}  // namespace nccl_exporter
