// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/web_guard.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "exporter/http/basic_auth.h"

namespace nccl_exporter::exporter {
namespace {

// `host` of a request without its port, in lower case, and without the brackets of an IPv6 address.
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

}  // namespace

HttpHandler WithPasswords(WebConfigFile& file, HttpHandler handler, RefusalCounter on_refusal) {
  return [&file, handler = std::move(handler), on_refusal = std::move(on_refusal),
          auth = std::make_shared<BasicAuth>()](const HttpRequest& request) -> HttpResponse {
    const std::shared_ptr<const WebConfig> config = file.Current();
    if (config->users.empty()) return handler(request);
    request.on_check(true);
    const BasicAuth::Verdict verdict =
        auth->Check(request.authorization, config->users, request.client);
    request.on_check(false);
    switch (verdict) {
      case BasicAuth::Verdict::kRight:
        return handler(request);
      case BasicAuth::Verdict::kBusy:
        on_refusal(Refusal::kPasswordChecks);
        return BusyResponse("Another password of this address is being checked\n");
      case BasicAuth::Verdict::kTooMany:
        on_refusal(Refusal::kPasswordChecksInAll);
        return BusyResponse("Too many passwords wait to be checked\n");
      case BasicAuth::Verdict::kWrong:
        break;
    }
    on_refusal(Refusal::kUnauthorized);
    return {.status = 401,
            .headers = {{"WWW-Authenticate", "Basic realm=\"nccl-exporter\", charset=\"UTF-8\""}},
            .body = "Unauthorized\n"};
  };
}

HttpHandler ForHosts(const std::vector<std::string>& hosts, HttpHandler handler,
                     RefusalCounter on_refusal) {
  std::vector<std::string> known;
  for (const std::string& host : hosts) known.push_back(HostWithoutPort(host));
  return [known = std::move(known), handler = std::move(handler),
          on_refusal = std::move(on_refusal)](const HttpRequest& request) -> HttpResponse {
    if (std::ranges::find(known, HostWithoutPort(request.host)) != known.end())
      return handler(request);
    on_refusal(Refusal::kForeignHost);
    return TextResponse(421, "Not a host of --web.allowed-host\n");
  };
}

}  // namespace nccl_exporter::exporter
