// SPDX-License-Identifier: Apache-2.0
// What becomes of versions, suites and curves, and which of them contradict each other.
#include "exporter/http/tls_priorities.h"

#include <gmock/gmock.h>
#include <gnutls/gnutls.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nccl_exporter {
namespace {

// The suites that GnuTLS makes of it.
std::vector<std::string> SuitesOf(const TlsConfig& config) {
  std::string error;
  const std::string text = TlsPriorities(config, error);
  EXPECT_EQ(error, "");
  gnutls_priority_t priorities = nullptr;
  EXPECT_EQ(gnutls_priority_init(&priorities, text.c_str(), nullptr), GNUTLS_E_SUCCESS) << text;
  std::vector<std::string> suites;
  unsigned index = 0;
  for (unsigned i = 0;; ++i) {
    const int status = gnutls_priority_get_cipher_suite_index(priorities, i, &index);
    if (status == GNUTLS_E_UNKNOWN_CIPHER_SUITE) continue;
    if (status < 0) break;
    unsigned char id[2];
    suites.emplace_back(gnutls_cipher_suite_info(index, id, nullptr, nullptr, nullptr, nullptr));
  }
  gnutls_priority_deinit(priorities);
  return suites;
}

std::string ErrorOf(const TlsConfig& config) {
  std::string error;
  TlsPriorities(config, error);
  return error;
}

TEST(TlsPrioritiesTest, AllowsTheNamedSuitesInTheirOrder) {
  TlsConfig config;
  config.max_version = TlsVersion::kTls12;
  config.cipher_suites = {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"};
  EXPECT_THAT(SuitesOf(config),
              testing::ElementsAre("TLS_ECDHE_ECDSA_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_AES_256_GCM_SHA384"));
  config.cipher_suites = {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_RSA_WITH_AES_128_CBC_SHA"};
  EXPECT_THAT(ErrorOf(config), testing::StartsWith("cipher_suites: GnuTLS cannot allow these without TLS_"));
}

TEST(TlsPrioritiesTest, SpeaksTls13WithTheSameCiphers) {
  TlsConfig config;
  config.cipher_suites = {"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"};
  EXPECT_THAT(SuitesOf(config),
              testing::UnorderedElementsAre("TLS_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_AES_256_GCM_SHA384"));
  config.cipher_suites.emplace_back("TLS_CHACHA20_POLY1305_SHA256");
  EXPECT_THAT(SuitesOf(config), testing::SizeIs(2)) << "it is no choice";
  config.cipher_suites = {"TLS_AES_128_GCM_SHA256"};
  EXPECT_THAT(SuitesOf(config), testing::ElementsAre("TLS_AES_128_GCM_SHA256"));
  config.max_version = TlsVersion::kTls12;
  EXPECT_EQ(ErrorOf(config), "cipher_suites: none is left for these versions");
}

TEST(TlsPrioritiesTest, KnowsEverySuiteThatGoNames) {
  for (const char* const name :
       {"TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_AES_256_CBC_SHA", "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256"}) {
    TlsConfig config;
    config.cipher_suites = {name};
    EXPECT_EQ(ErrorOf(config), "") << name;
  }
}

TEST(TlsPrioritiesTest, SaysWhatItDoesNotKnow) {
  TlsConfig config;
  config.cipher_suites = {"TLS_NONSENSE"};
  EXPECT_EQ(ErrorOf(config), "cipher_suites: unknown suite TLS_NONSENSE");
  config.cipher_suites.clear();
  config.curves = {"X25519", "CurveP1"};
  EXPECT_EQ(ErrorOf(config), "curve_preferences: unknown curve CurveP1");
}

}  // namespace
}  // namespace nccl_exporter
