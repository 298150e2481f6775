// SPDX-License-Identifier: Apache-2.0
// HttpAddress, where a server of HTTP is. Pure, for any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

struct HttpAddress {
  bool is_tls = false;
  std::string host;  // a name or an address, IPv6 without brackets
  std::string port;
  std::string prefix = {};  // of paths, without a slash at its end; empty: none
  std::string socket = {};  // path of a Unix socket, in place of all others

  std::string HostField() const;  // "prometheus:9090", or the path
  std::string Text() const;       // "http://prometheus:9090/prefix"
};

// The URL is http[s]://HOST[:PORT][/PREFIX]. Nothing for others; then `fault` says why.
std::optional<HttpAddress> ParseHttpAddress(std::string_view url, std::string& fault);

// Whether it is an address of IPv4 or IPv6, and no name.
bool IsAddress(const std::string& host);

}  // namespace nccl_exporter::exporter
