// SPDX-License-Identifier: Apache-2.0
// Versions, cipher suites and curves of the web configuration as a priority string of GnuTLS.
#pragma once

#include <string>

#include "exporter/http/web_config.h"

namespace nccl_exporter {

// What is wrong stands in `error`, one line: a suite or curve that GnuTLS does not know, none left for the versions, or
// suites of TLS 1.2 that cannot be allowed without others. GnuTLS allows key exchanges, ciphers and digests, each of
// them with each other; the suites of TLS 1.3 follow from the ciphers of the others.
std::string TlsPriorities(const TlsConfig& config, std::string& error);

}  // namespace nccl_exporter
