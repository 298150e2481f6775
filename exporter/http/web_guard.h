// SPDX-License-Identifier: Apache-2.0
// The web configuration in force, and what it means for every request: who is let in, and which
// headers answers carry.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "exporter/http/basic_auth.h"
#include "exporter/http/http_server.h"
#include "exporter/http/refusal.h"
#include "exporter/http/web_config.h"

namespace nccl_exporter::exporter {

// Safe to use from any thread.
class WebConfigFile {
 public:
  // Reads the file for the first time; a fault is put into `error`, one line.
  WebConfigFile(std::string path, std::string& error);

  // Returns the configuration in the file, which every call reads again. If the file has become
  // wrong, returns the one before; the log says so once. Whether there is TLS stays as it was at
  // first, since a port cannot change its protocol.
  std::shared_ptr<const WebConfig> Current();
  // Reads it now; what is wrong with it, empty if it is in force.
  std::string FaultNow();

 private:
  const std::string path_;
  std::mutex mutex_;
  WebConfigText text_;  // that was parsed last
  std::string fault_;   // of that
  std::shared_ptr<const WebConfig> config_;
};

class WebGuard {
 public:
  // `file` outlives this object.
  WebGuard(WebConfigFile& file, HttpHandler handler, RefusalCounter on_refusal);

  HttpResponse Answer(const HttpRequest& request);

 private:
  HttpResponse Unlocked(const HttpRequest& request, const WebConfig& config);

  WebConfigFile& file_;
  const HttpHandler handler_;
  const RefusalCounter on_refusal_;
  BasicAuth auth_;
};

}  // namespace nccl_exporter::exporter
