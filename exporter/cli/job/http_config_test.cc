// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/http_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "collector/testing/scratch_directory.h"
#include "exporter/cli/job/prometheus_address.h"

namespace nccl_exporter::exporter {
namespace {

HttpConfig Config(std::string_view yaml) {
  std::string fault;
  const std::optional<HttpConfig> config = ParseHttpConfig(yaml, "/etc/prometheus", fault);
  EXPECT_TRUE(config.has_value()) << fault;
  return config.value_or(HttpConfig());
}

std::string FaultOf(std::string_view yaml) {
  std::string fault;
  EXPECT_FALSE(ParseHttpConfig(yaml, "/etc/prometheus", fault).has_value()) << yaml;
  EXPECT_EQ(fault.find('\n'), std::string::npos);
  return fault;
}

TEST(HttpConfigTest, HasTheLoginsOfPrometheus) {
  EXPECT_EQ(Config("").authorization, "");
  EXPECT_EQ(Config("basic_auth: {username: Aladdin, password: 'open sesame'}").authorization,
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(Config("authorization: {credentials: abc}").authorization, "Bearer abc");
  EXPECT_EQ(Config("authorization: {type: Token, credentials: abc}").authorization, "Token abc");
  EXPECT_EQ(Config("bearer_token: abc").authorization, "Bearer abc");
}

TEST(HttpConfigTest, ReadsSecretsFromFilesBesideIt) {
  const collector::ScratchDirectory scratch;
  std::ofstream(scratch.path() + "/token") << "abc\n";
  std::ofstream(scratch.path() + "/http.yml") << "authorization: {credentials_file: token}\n";
  std::string fault;
  const std::optional<HttpConfig> config = ReadHttpConfig(scratch.path() + "/http.yml", fault);
  ASSERT_TRUE(config.has_value()) << fault;
  EXPECT_EQ(config->authorization, "Bearer abc");
  EXPECT_FALSE(ReadHttpConfig(scratch.path() + "/none.yml", fault).has_value());
  EXPECT_EQ(fault, "cannot read " + scratch.path() + "/none.yml: No such file or directory");
}

TEST(HttpConfigTest, HasTheTlsOfPrometheus) {
  EXPECT_EQ(Config("tls_config: {ca_file: ca.crt, cert_file: /a.crt, key_file: /a.key, "
                   "server_name: prometheus, insecure_skip_verify: true}")
                .tls,
            (TlsSettings{.ca_file = "/etc/prometheus/ca.crt",
                         .certificate_file = "/a.crt",
                         .key_file = "/a.key",
                         .server_name = "prometheus",
                         .skips_verification = true}));
}

TEST(HttpConfigTest, HasTheHeadersOfPrometheus) {
  EXPECT_EQ(Config("").fields, "");
  EXPECT_EQ(Config("http_headers: {X-Scope-OrgID: {values: [research]}}").fields,
            "X-Scope-OrgID: research\r\n");
  EXPECT_EQ(Config("http_headers:\n  X-Scope-OrgID: {values: [a|b]}\n"
                   "  X-Key:\n    values: ['', 1]\n    secrets: [abc]\n")
                .fields,
            "X-Scope-OrgID: a|b\r\nX-Key: \r\nX-Key: 1\r\nX-Key: abc\r\n");
  const collector::ScratchDirectory scratch;
  std::ofstream(scratch.path() + "/tenant") << "research\n";
  std::ofstream(scratch.path() + "/http.yml") << "http_headers: {X-Scope-OrgID: {files: [tenant]}}";
  std::string fault;
  const std::optional<HttpConfig> config = ReadHttpConfig(scratch.path() + "/http.yml", fault);
  ASSERT_TRUE(config.has_value()) << fault;
  EXPECT_EQ(config->fields, "X-Scope-OrgID: research\r\n");
}

TEST(HttpConfigTest, RefusesHeadersThatChangeTheRequest) {
  for (const char* const name : {"Host", "authorization", "Content-Length", "TRANSFER-ENCODING"})
    EXPECT_EQ(FaultOf(std::string("http_headers: {") + name + ": {values: [a]}}"),
              std::string("'") + name + "' of http_headers cannot be set");
  for (const char* const name : {"'a b'", "'a:'", "''", "\"a\\r\\nHost\"", "é"})
    EXPECT_THAT(FaultOf(std::string("http_headers: {") + name + ": {values: [a]}}"),
                testing::HasSubstr(" of http_headers is no name of a header"));
  EXPECT_EQ(FaultOf("http_headers: {A: {values: [\"a\\r\\nHost: b\"]}}"),
            "'A' of http_headers has a character that HTTP does not carry");
  EXPECT_EQ(FaultOf("http_headers: {A: {values: a}}"), "values of 'A' of http_headers is no list");
  EXPECT_EQ(FaultOf("http_headers: {A: a}"), "'A' of http_headers has no keys");
  EXPECT_EQ(FaultOf("http_headers: {A: {value: [a]}}"),
            "'value' of 'A' of http_headers is not supported");
  EXPECT_EQ(FaultOf("http_headers: [a]"), "http_headers has no keys");
  EXPECT_EQ(FaultOf("http_headers: {A: {values: [" + std::string(20000, 'a') + "]}}"),
            "its http_headers are longer than 16 KiB");
}

TEST(HttpConfigTest, RefusesWhatWouldHaveNoEffect) {
  EXPECT_EQ(FaultOf("oauth2: {client_id: a}"), "'oauth2' of the file is not supported");
  EXPECT_EQ(FaultOf("tls_config: {ca: abc}"), "'ca' of tls_config is not supported");
  EXPECT_EQ(FaultOf("a"), "the file has no keys");
  EXPECT_EQ(FaultOf("bearer_token: a\nbasic_auth: {username: a}"), "it has more than one login");
  EXPECT_EQ(FaultOf("bearer_token: a\nbearer_token_file: b"),
            "it has both 'bearer_token' and 'bearer_token_file'");
  EXPECT_EQ(FaultOf("tls_config: {cert_file: a}"),
            "cert_file and key_file of tls_config need each other");
  EXPECT_EQ(FaultOf("bearer_token: \"a\\r\\nHost: b\""),
            "its login has a character that HTTP does not carry");
  EXPECT_NE(FaultOf("a: ["), "");
}

TEST(PrometheusAddressTest, IsAnUrlWithOrWithoutPortAndPrefix) {
  const auto text = [](std::string_view url) {
    std::string fault;
    const std::optional<PrometheusAddress> address = ParsePrometheusAddress(url, fault);
    return address ? address->Text() : fault;
  };
  EXPECT_EQ(text(kDefaultPrometheus), "http://localhost:9090");
  EXPECT_EQ(text("https://mimir.example/prometheus/"), "https://mimir.example:443/prometheus");
  EXPECT_EQ(text("http://prometheus"), "http://prometheus:80");
  EXPECT_EQ(text("http://[::1]:9090"), "http://[::1]:9090");
  EXPECT_EQ(text("http://[::1]"), "http://[::1]:80");
  for (const char* const wrong :
       {"prometheus:9090", "ftp://a", "http://", "http://a:0", "http://a:99999", "http://::1:9090",
        "http://user:word@a", "http://a/?b", "http://a/ b", "http://a\r\nHost: b"})
    EXPECT_NE(text(wrong).find("; write http[s]://HOST[:PORT][/PREFIX]"), std::string::npos)
        << wrong;
}

}  // namespace
}  // namespace nccl_exporter::exporter
