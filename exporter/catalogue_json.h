// SPDX-License-Identifier: Apache-2.0
// The tables of the daemon as JSON, for scripts: `nccl-exporter catalogue`. A pure function, for
// any thread.
#pragma once

#include <string>

namespace nccl_exporter::exporter {

// Families, causes of loss, label values of timing, reasons of errors, and flags, each
// with its meaning. Ends in a line feed.
std::string CatalogueJson();

}  // namespace nccl_exporter::exporter
