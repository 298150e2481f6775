// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/host_guard.h"

#include <algorithm>
#include <utility>

namespace nccl_exporter::exporter {

std::string HostWithoutPort(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else if (std::ranges::count(host, ':') == 1) {
    host = host.substr(0, host.find(':'));
  }
  std::string text(host);
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

HostGuard::HostGuard(const std::vector<std::string>& hosts, HttpHandler handler,
                     RefusalCounter on_refusal)
    : handler_(std::move(handler)), on_refusal_(std::move(on_refusal)) {
  for (const std::string& host : hosts) hosts_.push_back(HostWithoutPort(host));
}

HttpResponse HostGuard::Answer(const HttpRequest& request) {
  if (std::ranges::find(hosts_, HostWithoutPort(request.host)) != hosts_.end())
    return handler_(request);
  on_refusal_(Refusal::kForeignHost);
  return {.status = 421, .headers = {}, .body = "Not a host of --web.allowed-host\n"};
}

}  // namespace nccl_exporter::exporter
