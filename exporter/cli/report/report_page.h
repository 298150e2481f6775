// SPDX-License-Identifier: Apache-2.0
// A report as one page of HTML with charts, in the style of the daemon's page. It has no script and
// loads nothing, so it can be kept and mailed. A pure function, for any thread.
#pragma once

#include <string>

#include "exporter/cli/report/report.h"

namespace nccl_exporter::exporter {

std::string ReportPage(const Report& report);

}  // namespace nccl_exporter::exporter
