// SPDX-License-Identifier: Apache-2.0
// Words and tables of a report, which text and HTML share, and the text for a terminal. Texts of
// other processes come out as text that a terminal only shows. Pure functions, for any thread.
#pragma once

#include <string>
#include <vector>

#include "exporter/cli/report/report.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {

// Each ends in a line feed, and has so many columns (0: no limit).
std::string ReportText(const Report& report, size_t columns);
std::string JobsText(const std::vector<Job>& jobs, const std::vector<std::string>& warnings,
                     size_t columns);

struct ReportTable {
  std::string title;
  std::vector<TextColumn> columns;  // without those in which all rows are empty
  std::vector<std::vector<std::string>> rows;
  size_t left_out = 0;  // rows beyond the most
};
// Without columns in which no row has a cell, and rows beyond the most.
ReportTable Trimmed(ReportTable table, size_t most_rows);
// Its lines, each with a line feed.
std::string TableText(const ReportTable& table, size_t columns);
// Those that have rows.
std::vector<ReportTable> TablesOf(const Report& report, size_t most_rows);

// "Job 4711 (llm-7b) of user 1000: 8 processes on 2 nodes".
std::string TitleOf(const Report& report);
// "2023-11-14 20:00:00 to 22:15:00 UTC (2.2 h)".
std::string SpanText(double from, double to);
// "2023-11-14 20:00:00 to 22:15:00 UTC (2.2 h), from Prometheus".
std::string TimeOf(const Report& report);
// Sentences: what the job had and lost, who was waited for, hangs with their culprits, suspects,
// and what is not known.
std::vector<std::string> SummaryOf(const Report& report);
// "global rank 5 (GPU 5, node-1, pid 1005)"; empty if the labels have no rank and no node.
std::string PlaceOf(const SampleLabels& labels);
// "2023-11-14 22:15:03"; of the same day as `day` without the date.
std::string MomentText(double time, double day = 0);
std::string PercentText(double share);  // "10.0 %"; empty for what is not finite
// "3.2 GPU h"; less than an hour is "12 GPU min".
std::string GpuTimeText(double gpu_seconds);

}  // namespace nccl_exporter::exporter
