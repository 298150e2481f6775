// SPDX-License-Identifier: Apache-2.0
// Passwords before pages, headers after them.
#include "exporter/http/web_guard.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

HttpResponse Plain(int status, std::string body,
                   std::vector<std::pair<std::string, std::string>> headers) {
  return {.status = status, .headers = std::move(headers), .body = std::move(body)};
}

}  // namespace

WebConfigFile::WebConfigFile(std::string path, std::string& error) : path_(std::move(path)) {
  text_ = ReadWebConfigText(path_);
  config_ = std::make_shared<const WebConfig>(ParseWebConfig(text_, path_, error));
}

std::shared_ptr<const WebConfig> WebConfigFile::Current() {
  const std::lock_guard lock(mutex_);
  WebConfigText text = ReadWebConfigText(path_);
  if (text == text_) return config_;
  text_ = std::move(text);
  std::string error;
  WebConfig config = ParseWebConfig(text_, path_, error);
  if (error.empty() && config.tls.has_value() != config_->tls.has_value()) {
    error = path_ + ": only a restart switches TLS on or off";
  }
  if (error.empty()) {
    spdlog::info("{}: read again", path_);
    config_ = std::make_shared<const WebConfig>(std::move(config));
  } else {
    spdlog::error("keeping the previous web configuration: {}", error);
  }
  fault_ = std::move(error);
  return config_;
}

std::string WebConfigFile::FaultNow() {
  Current();
  const std::lock_guard lock(mutex_);
  return fault_;
}

WebGuard::WebGuard(WebConfigFile& file, HttpHandler handler, RefusalCounter on_refusal)
    : file_(file), handler_(std::move(handler)), on_refusal_(std::move(on_refusal)) {}

HttpResponse WebGuard::Answer(const HttpRequest& request) {
  const std::shared_ptr<const WebConfig> config = file_.Current();
  HttpResponse response = Unlocked(request, *config);
  response.headers.insert(response.headers.end(), config->headers.begin(), config->headers.end());
  return response;
}

HttpResponse WebGuard::Unlocked(const HttpRequest& request, const WebConfig& config) {
  if (config.users.empty()) return handler_(request);
  request.on_check(true);
  const BasicAuth::Verdict verdict =
      auth_.Check(request.authorization, config.users, request.client);
  request.on_check(false);
  switch (verdict) {
    case BasicAuth::Verdict::kRight:
      return handler_(request);
    case BasicAuth::Verdict::kBusy:
      on_refusal_(Refusal::kPasswordChecks);
      return Plain(503, "Another password of this address is being checked\n",
                   {{"Retry-After", "1"}});
    case BasicAuth::Verdict::kTooMany:
      on_refusal_(Refusal::kPasswordChecksInAll);
      return Plain(503, "Too many passwords wait to be checked\n", {{"Retry-After", "1"}});
    case BasicAuth::Verdict::kWrong:
      break;
  }
  on_refusal_(Refusal::kUnauthorized);
  return Plain(401, "Unauthorized\n",
               {{"WWW-Authenticate", "Basic realm=\"nccl-exporter\", charset=\"UTF-8\""}});
}

}  // namespace nccl_exporter::exporter
