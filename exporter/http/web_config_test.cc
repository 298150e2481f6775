// SPDX-License-Identifier: Apache-2.0
// The toolkit's schema, and all that is not in it.
#include "exporter/http/web_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kHash = "$2y$04$abcdefghijklmnopqrstuuN6tPGcMNGYMDEjNzaPYtKCRf9Kvxvn.";

std::string ErrorOf(const std::string& yaml) {
  std::string error;
  ParseWebConfig(yaml, "/etc", error);
  EXPECT_EQ(error.find('\n'), std::string::npos);
  return error;
}

TEST(WebConfigTest, ReadsEveryKeyOfTheSchema) {
  std::string error;
  const WebConfig config = ParseWebConfig(std::string(R"(
tls_server_config:
  cert_file: tls/server.pem
  key_file: /keys/server.key
  client_ca_file: ca.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus, 10.0.0.1]
  min_version: TLS13
  max_version: TLS13
  curve_preferences: [X25519]
  prefer_server_cipher_suites: false
http_server_config:
  http2: false
  headers:
    X-Frame-Options: deny
    Strict-Transport-Security: max-age=1
basic_auth_users:
  alice: )") + kHash,
                                          "/etc/nccl", error);
  EXPECT_EQ(error, "");
  ASSERT_TRUE(config.tls);
  EXPECT_EQ(config.tls->certificate.file, "/etc/nccl/tls/server.pem");
  EXPECT_EQ(config.tls->key.file, "/keys/server.key");
  EXPECT_EQ(config.tls->client_ca.file, "/etc/nccl/ca.pem");
  EXPECT_EQ(config.tls->client_auth, ClientAuth::kRequireAndVerify);
  EXPECT_THAT(config.tls->client_allowed_sans, testing::ElementsAre("prometheus", "10.0.0.1"));
  EXPECT_EQ(config.tls->min_version, TlsVersion::kTls13);
  EXPECT_FALSE(config.tls->prefers_server_cipher_suites);
  EXPECT_THAT(config.headers,
              testing::ElementsAre(testing::Pair("X-Frame-Options", "deny"),
                                   testing::Pair("Strict-Transport-Security", "max-age=1")));
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
      {"\ntls_server_config:\n  cert: a\n  key: b\n  cipher: c",
       "line 5: unknown key 'cipher' in tls_server_config"},
      {"http_server_config:\n  http3: true", "line 2: unknown key 'http3' in http_server_config"},
      {"http_server_config:\n  http2: maybe", "line 2: true or false is expected"},
      {"http_server_config:\n  headers:\n    Server: x", "line 3: header 'Server' cannot be set"},
      {"http_server_config:\n  headers:\n    X-Frame-Options: \"a\\nb\"",
       "has a value that cannot be sent"},
      {"tls_server_config:\n  key: b", "neither cert_file nor cert"},
      {"tls_server_config:\n  cert: b", "neither key_file nor key"},
      {"tls_server_config:\n  cert: a\n  cert_file: b\n  key: c", "both cert and cert_file"},
      {"tls_server_config: {cert: a, key: b, min_version: TLS14}",
       "'TLS14' is not one of TLS10, TLS11, TLS12, TLS13"},
      {"tls_server_config: {cert: a, key: b, cipher_suites: [TLS_AES_128_GCM_SHA256]}",
       "line 1: cipher_suites is not"},
      {"tls_server_config: {cert: a, key: b, min_version: TLS13, max_version: TLS12}",
       "min_version is above"},
      {"tls_server_config: {cert: a, key: b, client_auth_type: RequireAndVerifyClientCert}",
       "requires a client CA"},
      {"tls_server_config: {cert: a, key: b, client_ca: c}", "a client CA is given that"},
      {"tls_server_config: {cert: a, key: b, client_allowed_sans: [c]}",
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

}  // namespace
}  // namespace nccl_exporter::exporter
