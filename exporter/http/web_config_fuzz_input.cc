// SPDX-License-Identifier: Apache-2.0
// Properties of a web configuration that hold for any file: it is wrong in one line, or safe to
// use.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "exporter/http/web_config.h"
#include "exporter/testing/text_fuzz.h"

namespace nccl_exporter::exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "web_config_fuzz: broken promise: %s\n", promise);
  std::abort();
}

void CheckTls(const TlsConfig& tls) {
  Require(tls.certificate.is_given() && tls.key.is_given(), "TLS has a certificate and a key");
  Require(tls.certificate.file.empty() || tls.certificate.inline_text.empty(),
          "a certificate has one source");
  Require(tls.min_version <= tls.max_version, "there is a version to speak");
  const bool verifies = tls.client_auth == ClientAuth::kVerifyIfGiven ||
                        tls.client_auth == ClientAuth::kRequireAndVerify;
  Require(verifies == tls.client_ca.is_given(), "who is verified is verified against something");
  Require(verifies || tls.client_allowed_sans.empty(), "names are of verified clients");
}

}  // namespace

void CheckInput(std::string_view input) {
  std::string error;
  const WebConfig config = ParseWebConfig(input, "/etc", error);
  Require(error.find('\n') == std::string::npos && error.size() < 400, "an error is one line");
  if (!error.empty()) return;
  if (config.tls) CheckTls(*config.tls);
  for (const auto& [name, value] : config.headers) {
    const bool is_plain = std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
    Require(is_plain && !value.empty(), "a header can be sent");
  }
  for (const auto& [name, hash] : config.users) {
    Require(!name.empty() && name.find(':') == std::string::npos, "a user can log in");
    Require(hash.size() == 60 && hash.starts_with("$2"), "a password is hashed");
  }
}

}  // namespace nccl_exporter::exporter::fuzz
