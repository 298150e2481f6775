// SPDX-License-Identifier: Apache-2.0
// PrometheusAddress, where a server with Prometheus' HTTP API is. Pure, for any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

inline constexpr std::string_view kDefaultPrometheus = "http://localhost:9090";

struct PrometheusAddress {
  bool is_tls = false;
  std::string host;  // a name or an address, IPv6 without brackets
  std::string port;
  std::string prefix;  // of paths, without a slash at its end; empty: none

  std::string HostField() const;  // "prometheus:9090"
  std::string Text() const;       // "http://prometheus:9090/prefix"
};

// Of http[s]://HOST[:PORT][/PREFIX]. Nothing for others; then `fault` says why.
std::optional<PrometheusAddress> ParsePrometheusAddress(std::string_view url, std::string& fault);

}  // namespace nccl_exporter::exporter
