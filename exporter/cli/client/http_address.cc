// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/http_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>

#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter {
namespace {

// Takes `begin` away; false if it is not there.
bool Skip(std::string_view begin, std::string_view& text) {
  if (!text.starts_with(begin)) return false;
  text.remove_prefix(begin.size());
  return true;
}

}  // namespace

std::string HttpAddress::HostField() const {
  if (!socket.empty()) return socket;
  return (host.find(':') == std::string::npos ? host : '[' + host + ']') + ':' + port;
}

std::string HttpAddress::Text() const {
  return (is_tls ? "https://" : "http://") + HostField() + prefix;
}

std::optional<HttpAddress> ParseHttpAddress(std::string_view url, std::string& fault) {
  const auto refuse = [&](const char* why) {
    fault = why;
    return std::nullopt;
  };
  // They go into a request as they are.
  if (!std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7F; }))
    return refuse("it has a character that no URL has");
  HttpAddress address;
  address.is_tls = Skip("https://", url);
  if (!address.is_tls && !Skip("http://", url))
    return refuse("it does not begin with http:// or https://");
  if (url.find_first_of("?#@") != std::string_view::npos)
    return refuse("it has a login, a query or a fragment");
  const size_t slash = std::min(url.find('/'), url.size());
  address.prefix = url.substr(slash);
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  url = url.substr(0, slash);
  const size_t colon = url.rfind(':');
  const bool has_port = colon != std::string_view::npos && !url.ends_with(']');
  address.port = has_port ? url.substr(colon + 1) : address.is_tls ? "443" : "80";
  if (NumberIn<uint16_t>(address.port).value_or(0) == 0)
    return refuse("its port is no number of 1 to 65535");
  std::string_view host = has_port ? url.substr(0, colon) : url;
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  if (host.empty() || has_brackets != (host.find(':') != std::string_view::npos))
    return refuse("it has no host, or an IPv6 address without brackets");
  address.host = host;
  return address;
}

bool IsAddress(const std::string& host) {
  in6_addr parsed{};
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

}  // namespace nccl_exporter::exporter
