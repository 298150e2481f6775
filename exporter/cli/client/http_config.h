// SPDX-License-Identifier: Apache-2.0
// HttpConfig, the login, TLS and further fields of a request, from a file as promtool's
// --http.config.file takes it: http_config of Prometheus' own configuration. For any thread.
#pragma once

#include <cstddef>
#include <string>

#include "exporter/cli/client/plain_get.h"

namespace nccl_exporter::exporter {

// A longer file is refused, and a longer file with a password: both are a few lines.
inline constexpr size_t kHttpConfigLimitBytes = size_t{1} << 20;

struct HttpConfig {
  TlsSettings tls;
  std::string fields;  // of the login and of http_headers, each with its end
};

// Reads a configuration: basic_auth, authorization, tls_config and http_headers. Other keys are
// refused, since they would silently have no effect. Paths in it are relative to the file. No path:
// no login, and the system's authorities. Throws std::runtime_error with one line if it is wrong.
HttpConfig ReadHttpConfig(const std::string& path);

}  // namespace nccl_exporter::exporter
