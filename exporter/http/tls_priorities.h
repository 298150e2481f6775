// SPDX-License-Identifier: Apache-2.0
// Priority string of GnuTLS from the versions and curves of the web configuration.
#pragma once

#include <string>

#include "exporter/http/web_config.h"

namespace nccl_exporter::exporter {

// `error` gets one line if something is wrong: a curve that is unknown.
std::string TlsPriorities(const TlsConfig& config, std::string& error);

}  // namespace nccl_exporter::exporter
