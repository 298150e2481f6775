// SPDX-License-Identifier: Apache-2.0
// HostGuard, which answers requests for known hosts only: a page of another site, whose name was
// made to lead here (DNS rebinding), names its own host. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exporter/http/http_server.h"
#include "exporter/http/refusal.h"

namespace nccl_exporter::exporter {

// `host` of a request without its port, in lower case, and without the brackets of an IPv6 address.
std::string HostWithoutPort(std::string_view host);

class HostGuard {
 public:
  // `hosts` as --web.allowed-host gives them, at least one.
  HostGuard(const std::vector<std::string>& hosts, HttpHandler handler, RefusalCounter on_refusal);

  HttpResponse Answer(const HttpRequest& request);

 private:
  std::vector<std::string> hosts_;
  const HttpHandler handler_;
  const RefusalCounter on_refusal_;
};

}  // namespace nccl_exporter::exporter
