// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/tls_priorities.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

std::string Versions(const TlsConfig& config) {
  constexpr std::array<const char*, 4> kNames{":+VERS-TLS1.0", ":+VERS-TLS1.1", ":+VERS-TLS1.2",
                                              ":+VERS-TLS1.3"};
  std::string text = ":-VERS-ALL";
  for (int version = static_cast<int>(config.max_version);
       version >= static_cast<int>(config.min_version); --version) {
    text += kNames[static_cast<size_t>(version)];
  }
  return text;
}

std::string Groups(const std::vector<std::string>& curves, std::string& error) {
  constexpr std::array<std::pair<std::string_view, const char*>, 5> kGroups{
      {{"CurveP256", ":+GROUP-SECP256R1"},
       {"CurveP384", ":+GROUP-SECP384R1"},
       {"CurveP521", ":+GROUP-SECP521R1"},
       {"X25519", ":+GROUP-X25519"},
       {"X25519MLKEM768", ":+GROUP-X25519-MLKEM768"}}};
  std::string text = ":-GROUP-ALL";
  for (const std::string& curve : curves) {
    const auto group =
        std::ranges::find(kGroups, curve, &std::pair<std::string_view, const char*>::first);
    if (group != kGroups.end()) {
      text += group->second;
    } else if (error.empty()) {
      error = "curve_preferences: unknown curve " + curve;
    }
  }
  return text;
}

}  // namespace

std::string TlsPriorities(const TlsConfig& config, std::string& error) {
  std::string text = "NORMAL" + Versions(config);
  if (!config.curves.empty()) text += Groups(config.curves, error);
  if (!error.empty()) return "";
  if (config.prefers_server_cipher_suites) text += ":%SERVER_PRECEDENCE";
  return text;
}

}  // namespace nccl_exporter::exporter
