// SPDX-License-Identifier: Apache-2.0
// Settings of a push: from the flags of `nccl-exporter otlp`, and from the variables of
// OpenTelemetry. For the first thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "exporter/cli/client/http_address.h"
#include "exporter/cli/client/plain_get.h"

namespace nccl_exporter::exporter::otlp {

// A member without a value is not given by a flag.
struct Settings {
  std::optional<HttpAddress> endpoint = {};  // with the path of metrics
  std::optional<std::chrono::milliseconds> timeout = {}, interval = {};
  std::string compression = {};  // gzip or none
  std::string fields = {};       // of the head of a request, each with its end
  TlsSettings tls = {};
};

inline constexpr const char* kDefaultEndpoint = "http://localhost:4318";

// The address of a receiver. /v1/metrics follows, unless the URL ends in it or `is_whole`. Nothing
// if it is none; then `fault` says why.
std::optional<HttpAddress> EndpointAt(const std::string& url, std::string& fault,
                                      bool is_whole = false);

// The value of a variable, or null: std::getenv.
using Variables = std::function<const char*(const char* name)>;

// Gives a value to all that has none: of OTEL_EXPORTER_OTLP_METRICS_*, else OTEL_EXPORTER_OTLP_*,
// else the default. Throws std::runtime_error with one line for a wrong value, and for what is
// asked for and not supported.
void Complete(Settings& settings, const Variables& variables);

}  // namespace nccl_exporter::exporter::otlp
