// SPDX-License-Identifier: Apache-2.0
// HttpConfig, the login, TLS and further fields of a request, from a file as promtool's
// --http.config.file takes it: http_config of Prometheus' own configuration. For any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/cli/client/connection.h"

namespace nccl_exporter::exporter {

// A longer file is refused, and a longer file with a password: both are a few lines.
inline constexpr size_t kHttpConfigLimitBytes = size_t{1} << 20;
// Of http_headers in all. Servers refuse heads of this size, and less.
inline constexpr size_t kHttpHeadersLimitBytes = size_t{16} << 10;

struct HttpConfig {
  TlsSettings tls;
  std::string authorization;  // value of the field; empty: no login
  std::string fields;         // of http_headers, each with its end
};

// Reads a configuration: basic_auth, authorization, bearer_token, bearer_token_file, tls_config and
// http_headers. Other keys are refused, since they would silently have no effect. Relative paths in
// it are relative to `directory`. Nothing if it is wrong; then `fault` says why, in one line.
std::optional<HttpConfig> ParseHttpConfig(std::string_view yaml, const std::string& directory,
                                          std::string& fault);
// The same of a file. No path: no login, and the system's authorities.
std::optional<HttpConfig> ReadHttpConfig(const std::string& path, std::string& fault);

}  // namespace nccl_exporter::exporter
