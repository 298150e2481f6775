// SPDX-License-Identifier: Apache-2.0
// Handlers around a handler, which decide who is answered. Any thread.
#pragma once

#include <string>
#include <vector>

#include "exporter/http/http_server.h"
#include "exporter/http/refusal.h"
#include "exporter/http/web_config.h"

namespace nccl_exporter::exporter {

// Asks for a password where the configuration in force has users. `file` outlives the handler.
HttpHandler WithPasswords(WebConfigFile& file, HttpHandler handler, RefusalCounter on_refusal);

// Answers requests for known hosts only, at least one, as --web.allowed-host gives them: a page of
// another site, whose name was made to lead here (DNS rebinding), names its own host.
HttpHandler ForHosts(const std::vector<std::string>& hosts, HttpHandler handler,
                     RefusalCounter on_refusal);

}  // namespace nccl_exporter::exporter
