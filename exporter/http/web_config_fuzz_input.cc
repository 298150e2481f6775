// SPDX-License-Identifier: Apache-2.0
// Properties of a web configuration that hold for any file: it is wrong in one line, or safe to
// use.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
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
  Require(!tls.cert_file.empty() && !tls.key_file.empty(), "TLS has a certificate and a key");
  Require(tls.verifies_clients == !tls.client_ca_file.empty(),
          "who is verified is verified against something");
  Require(tls.verifies_clients || tls.client_allowed_sans.empty(), "names are of verified clients");
}

}  // namespace

void CheckInput(std::string_view input) {
  WebConfig config;
  try {
    config = ParseWebConfig(input, "/etc");
  } catch (const std::runtime_error& wrong) {
    const std::string error = wrong.what();
    Require(error.find('\n') == std::string::npos && error.size() < 400, "an error is one line");
    return;
  }
  if (config.tls) CheckTls(*config.tls);
  for (const auto& [name, hash] : config.users) {
    Require(!name.empty() && name.find(':') == std::string::npos, "a user can log in");
    Require(hash.size() == 60 && hash.starts_with("$2"), "a password is hashed");
  }
}

}  // namespace nccl_exporter::exporter::fuzz
