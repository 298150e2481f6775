// SPDX-License-Identifier: Apache-2.0
// Suites are taken apart, and what comes of their parts is compared with what was asked for.
#include "exporter/http/tls_priorities.h"

#include <gnutls/gnutls.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace nccl_exporter {
namespace {

struct Suite {
  std::string name;  // GnuTLS' own
  gnutls_kx_algorithm_t key_exchange;
  gnutls_cipher_algorithm_t cipher;
  gnutls_mac_algorithm_t digest;
  gnutls_protocol_t version;  // the lowest
};

Suite SuiteAt(size_t index) {
  Suite suite{};
  unsigned char id[2];
  const char* const name =
      gnutls_cipher_suite_info(index, id, &suite.key_exchange, &suite.cipher, &suite.digest, &suite.version);
  if (name != nullptr) suite.name = name;
  return suite;
}

// IANA's name, which Go cuts short for ChaCha20, in the words of GnuTLS, which leaves out WITH and calls SHA1 by its
// number.
std::string GnutlsName(std::string name) {
  if (const size_t with = name.find("_WITH_"); with != std::string::npos) {
    name.erase(with, std::string_view("_WITH").size());
    constexpr std::string_view kPolyDigest = "_POLY1305_SHA256";
    if (name.ends_with(kPolyDigest)) name.resize(name.size() - std::string_view("_SHA256").size());
  }
  return name.ends_with("_SHA") ? name + '1' : name;
}

// Those of TLS 1.3 count only where there are no others: to Go, they are no choice at all.
std::vector<Suite> NamedSuites(const std::vector<std::string>& names, std::string& error) {
  std::vector<Suite> suites;
  for (const std::string& name : names) {
    Suite suite;
    size_t index = 0;
    do suite = SuiteAt(index++);
    while (!suite.name.empty() && suite.name != GnutlsName(name));
    if (suite.name.empty() && error.empty()) error = "cipher_suites: unknown suite " + name;
    suites.push_back(std::move(suite));
  }
  const auto is_of_13 = [](const Suite& suite) { return suite.version == GNUTLS_TLS1_3; };
  if (!std::ranges::all_of(suites, is_of_13)) std::erase_if(suites, is_of_13);
  return suites;
}

std::string Versions(const TlsConfig& config) {
  constexpr std::array<const char*, 4> kNames{":+VERS-TLS1.0", ":+VERS-TLS1.1", ":+VERS-TLS1.2", ":+VERS-TLS1.3"};
  std::string text = ":-VERS-ALL";
  for (int version = static_cast<int>(config.max_version); version >= static_cast<int>(config.min_version); --version) {
    text += kNames[static_cast<size_t>(version)];
  }
  return text;
}

std::string Parts(const std::vector<Suite>& suites) {
  std::string text = ":-KX-ALL:-CIPHER-ALL:-MAC-ALL";
  for (const Suite& suite : suites) {
    const bool has_key_exchange = suite.version != GNUTLS_TLS1_3;
    if (has_key_exchange) text.append(":+").append(gnutls_kx_get_name(suite.key_exchange));
    text.append(":+").append(gnutls_cipher_get_name(suite.cipher));
    text.append(":+").append(gnutls_mac_get_name(suite.digest));
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
    const auto group = std::ranges::find(kGroups, curve, &std::pair<std::string_view, const char*>::first);
    if (group != kGroups.end()) {
      text += group->second;
    } else if (error.empty()) {
      error = "curve_preferences: unknown curve " + curve;
    }
  }
  return text;
}

// What of the suites that the priorities allow is wrong, or an empty string.
std::string Mistake(gnutls_priority_t priorities, const std::vector<Suite>& named) {
  bool is_any_left = false;
  unsigned index = 0;
  for (unsigned i = 0;; ++i) {
    const int status = gnutls_priority_get_cipher_suite_index(priorities, i, &index);
    if (status == GNUTLS_E_UNKNOWN_CIPHER_SUITE) continue;
    if (status < 0) break;
    is_any_left = true;
    const Suite suite = SuiteAt(index);
    const bool follows = suite.version == GNUTLS_TLS1_3 || named.empty();
    if (follows || std::ranges::find(named, suite.name, &Suite::name) != named.end()) continue;
    return "cipher_suites: GnuTLS cannot allow these without " + suite.name;
  }
  return is_any_left ? "" : "cipher_suites: none is left for these versions";
}

}  // namespace

std::string TlsPriorities(const TlsConfig& config, std::string& error) {
  const std::vector<Suite> named = NamedSuites(config.cipher_suites, error);
  std::string text = "NORMAL" + Versions(config);
  if (!config.curves.empty()) text += Groups(config.curves, error);
  if (!error.empty()) return "";
  if (!named.empty()) text += Parts(named);
  if (config.prefers_server_cipher_suites) text += ":%SERVER_PRECEDENCE";
  gnutls_priority_t priorities = nullptr;
  const char* wrong = "";
  if (gnutls_priority_init(&priorities, text.c_str(), &wrong) != GNUTLS_E_SUCCESS) {
    error = std::string("this GnuTLS does not know ") + wrong;
    return "";
  }
  error = Mistake(priorities, named);
  gnutls_priority_deinit(priorities);
  return text;
}

}  // namespace nccl_exporter
