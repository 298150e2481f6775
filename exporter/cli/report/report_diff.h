// SPDX-License-Identifier: Apache-2.0
// ReportChange, a time per step that differs between two reports by more than noise. Pure, for any
// thread.
#pragma once

#include <string>
#include <vector>

#include "exporter/cli/report/report.h"

namespace nccl_exporter::exporter {

// Seconds per step; 0 where a report lacks it. `name` is a text of another process.
struct ReportChange {
  std::string name;  // as ReportMeasure has it
  double before = 0;
  double after = 0;
};

// The largest first. Throws std::runtime_error with one line if a report has no time per step, or
// if their steps are not counted alike.
std::vector<ReportChange> ChangesOf(const Report& before, const Report& after);

// For a terminal of so many columns (0: no limit), and as one line of JSON. The text is empty where
// nothing changed, but for a line if one report has no GPU times: then steps alone are compared.
std::string DiffText(const Report& before, const Report& after, size_t columns);
std::string DiffJson(const Report& before, const Report& after);

}  // namespace nccl_exporter::exporter
