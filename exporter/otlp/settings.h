// SPDX-License-Identifier: Apache-2.0
// Settings of `nccl-exporter otlp`, from its flags and from the variables of OpenTelemetry. For the
// first thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "exporter/cli/client/http_address.h"
#include "exporter/cli/client/plain_get.h"
#include "exporter/otlp/metrics_request.h"

namespace nccl_exporter::exporter::otlp {

// A member without a value is not given by a flag.
struct Settings {
  std::optional<HttpAddress> endpoint = {};  // with the path of metrics
  std::optional<std::chrono::milliseconds> timeout = {}, interval = {};
  std::optional<bool> compresses = {};
  std::string fields = {};  // of the head of a request, each with its end
  TlsSettings tls = {};
  HistogramForm form = HistogramForm::kExplicit;
  std::string queue_directory = {};  // empty: in memory
  size_t queue_mib = 64;
};

inline constexpr const char* kMetricsPath = "/v1/metrics";
inline constexpr std::chrono::seconds kDefaultTimeout{10}, kDefaultInterval{15};
inline constexpr const char* kDefaultEndpoint = "http://localhost:4318";

// The address of a receiver; kMetricsPath follows unless the URL ends in it. Nothing if it is none;
// then `fault` says why.
std::optional<HttpAddress> EndpointAt(const std::string& url, std::string& fault);

// The value of a variable; empty if it is not set.
using Variables = std::function<std::string(const std::string& name)>;

// Gives a value to all that has none: of OTEL_EXPORTER_OTLP_METRICS_*, else OTEL_EXPORTER_OTLP_*,
// else the default. Throws std::runtime_error with one line for a wrong value, and for what is
// asked for and not supported.
void Complete(Settings& settings, const Variables& variables);

}  // namespace nccl_exporter::exporter::otlp
