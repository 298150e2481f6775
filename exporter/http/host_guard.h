// SPDX-License-Identifier: Apache-2.0
// HostGuard, which answers requests for known hosts only: a page of another site, whose name was
// made to lead here (DNS rebinding), names its own host. Any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/http/http_server.h"
#include "exporter/http/refusal.h"

namespace nccl_exporter::exporter {

// `host` of a request without its port, in lower case, and without the brackets of an IPv6 address.
inline std::string HostWithoutPort(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else if (std::ranges::count(host, ':') == 1) {
    host = host.substr(0, host.find(':'));
  }
  std::string text(host);
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

class HostGuard {
 public:
  // `hosts` as --web.allowed-host gives them, at least one.
  HostGuard(const std::vector<std::string>& hosts, HttpHandler handler, RefusalCounter on_refusal)
      : handler_(std::move(handler)), on_refusal_(std::move(on_refusal)) {
    for (const std::string& host : hosts) hosts_.push_back(HostWithoutPort(host));
  }

  HttpResponse Answer(const HttpRequest& request) {
    if (std::ranges::find(hosts_, HostWithoutPort(request.host)) != hosts_.end())
      return handler_(request);
    on_refusal_(Refusal::kForeignHost);
    return {.status = 421, .headers = {}, .body = "Not a host of --web.allowed-host\n"};
  }

 private:
  std::vector<std::string> hosts_;
  const HttpHandler handler_;
  const RefusalCounter on_refusal_;
};

}  // namespace nccl_exporter::exporter
