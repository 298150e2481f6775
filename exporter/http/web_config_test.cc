// SPDX-License-Identifier: Apache-2.0
// The keys that are taken, and all others.
#include "exporter/http/web_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kHash = "$2y$04$abcdefghijklmnopqrstuuN6tPGcMNGYMDEjNzaPYtKCRf9Kvxvn.";

std::string ErrorOf(const std::string& yaml) {
  try {
    ParseWebConfig(yaml, "/etc");
  } catch (const std::runtime_error& wrong) {
    EXPECT_EQ(std::string(wrong.what()).find('\n'), std::string::npos);
    return wrong.what();
  }
  return "";
}

TEST(WebConfigTest, ReadsEveryKey) {
  const WebConfig config = ParseWebConfig(std::string(R"(
tls_server_config:
  cert_file: tls/server.pem
  key_file: /keys/server.key
  client_ca_file: ca.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus, 10.0.0.1]
  min_version: TLS13
basic_auth_users:
  alice: )") + kHash,
                                          "/etc/nccl");
  ASSERT_TRUE(config.tls);
  EXPECT_EQ(config.tls->cert_file, "/etc/nccl/tls/server.pem");
  EXPECT_EQ(config.tls->key_file, "/keys/server.key");
  EXPECT_EQ(config.tls->client_ca_file, "/etc/nccl/ca.pem");
  EXPECT_TRUE(config.tls->verifies_clients);
  EXPECT_THAT(config.tls->client_allowed_sans, testing::ElementsAre("prometheus", "10.0.0.1"));
  EXPECT_EQ(config.tls->min_version, TlsVersion::kTls13);
  EXPECT_EQ(config.users.at("alice"), kHash);
}

TEST(WebConfigTest, AnEmptyFileAsksForNothing) {
  for (const char* const yaml : {"", "\n", "# comment\n", "{}", "basic_auth_users:\n", "---\n"}) {
    EXPECT_EQ(ErrorOf(yaml), "") << yaml;
  }
}

TEST(WebConfigTest, SaysWhatIsWrongAndWhere) {
  const std::pair<std::string, const char*> cases[]{
      {"tls_config: {}", "line 1: unknown key 'tls_config' in the file"},
      {"\ntls_server_config:\n  cert_file: a\n  key_file: b\n  cipher: c",
       "line 5: unknown key 'cipher' in tls_server_config"},
      {"http_server_config:\n  http2: true", "line 1: http_server_config is not supported"},
      {"tls_server_config: {cert: a}", "line 1: cert is not supported: remove the key"},
      {"tls_server_config:\n  key_file: b", "has no cert_file"},
      {"tls_server_config:\n  cert_file: b", "has no key_file"},
      {"tls_server_config: {cert_file: a, key_file: b, min_version: TLS14}",
       "'TLS14' is not one of TLS10, TLS11, TLS12, TLS13"},
      {"tls_server_config: {cert_file: a, key_file: b, cipher_suites: [TLS_AES_128_GCM_SHA256]}",
       "line 1: cipher_suites is not supported"},
      {"tls_server_config: {cert_file: a, key_file: b, client_auth_type: "
       "RequireAndVerifyClientCert}",
       "requires a client CA"},
      {"tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}",
       "a client CA is given that"},
      {"tls_server_config: {cert_file: a, key_file: b, client_allowed_sans: [c]}",
       "client_allowed_sans has no effect"},
      {"basic_auth_users: {a: secret}", "user 'a': the password is not hashed with bcrypt"},
      {std::string("basic_auth_users: {\"a:b\": ") + kHash + "}", "user 'a:b': no valid name"},
      {std::string("basic_auth_users: {a: $2y$31$") + (kHash + 7) + "}",
       "cost of the hash is not between 4 and 16"},
      {"basic_auth_users: [a]", "basic_auth_users is not a map"},
      {"a: b: c", "line 1: "},
      {"- a", "the file is not a map"},
  };
  for (const auto& [yaml, error] : cases)
    EXPECT_THAT(ErrorOf(yaml), testing::HasSubstr(error)) << yaml;
}

TEST(WebConfigTest, ClientsAreVerifiedOrNotAskedForACertificate) {
  const std::string tls = "tls_server_config: {cert_file: a, key_file: b, client_auth_type: ";
  EXPECT_FALSE(ParseWebConfig(tls + "NoClientCert}", "/").tls->verifies_clients);
  EXPECT_FALSE(
      ParseWebConfig("tls_server_config: {cert_file: a, key_file: b}", "/").tls->verifies_clients);
  for (const std::string mode :
       {"RequestClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "Any"}) {
    EXPECT_EQ(ErrorOf(tls + mode + ", client_ca_file: c}"),
              "line 1: '" + mode + "' is not one of NoClientCert, RequireAndVerifyClientCert");
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
