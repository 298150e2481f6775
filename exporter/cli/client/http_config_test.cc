// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/http_config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter {
namespace {

class HttpConfigTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(scratch_.path() + '/' + name) << text;
  }
  HttpConfig Config(const std::string& yaml) const {
    Write("http.yml", yaml);
    return ReadHttpConfig(scratch_.path() + "/http.yml");
  }
  // Without the path.
  std::string FaultOf(const std::string& yaml) const {
    try {
      Config(yaml);
    } catch (const std::runtime_error& wrong) {
      const std::string fault = wrong.what();
      EXPECT_EQ(fault.find('\n'), std::string::npos);
      EXPECT_TRUE(fault.starts_with(scratch_.path() + "/http.yml: ")) << fault;
      return fault.substr(fault.find(": ") + 2);
    }
    ADD_FAILURE() << "is not refused: " << yaml;
    return "";
  }

  const collector::ScratchDirectory scratch_;
};

TEST_F(HttpConfigTest, HasTheLoginsOfPrometheus) {
  EXPECT_EQ(Config("").fields, "");
  EXPECT_EQ(Config("basic_auth: {username: Aladdin, password: 'open sesame'}").fields,
            "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n");
  EXPECT_EQ(Config("authorization: {credentials: abc}").fields, "Authorization: Bearer abc\r\n");
  EXPECT_EQ(Config("authorization: {type: Token, credentials: abc}").fields,
            "Authorization: Token abc\r\n");
}

TEST_F(HttpConfigTest, ReadsSecretsFromFilesBesideIt) {
  Write("token", "abc\n");
  EXPECT_EQ(Config("authorization: {credentials_file: token}").fields,
            "Authorization: Bearer abc\r\n");
  EXPECT_EQ(FaultOf("authorization: {credentials_file: none}"),
            "cannot read " + scratch_.path() + "/none: No such file or directory");
  try {
    ReadHttpConfig("/none.yml");
    ADD_FAILURE() << "no file is refused";
  } catch (const std::runtime_error& wrong) {
    EXPECT_STREQ(wrong.what(), "/none.yml: cannot read /none.yml: No such file or directory");
  }
}

TEST_F(HttpConfigTest, HasTheTlsOfPrometheus) {
  EXPECT_EQ(Config("tls_config: {ca_file: ca.crt, cert_file: /a.crt, key_file: /a.key, "
                   "server_name: prometheus, insecure_skip_verify: true}")
                .tls,
            (TlsSettings{.ca_file = scratch_.path() + "/ca.crt",
                         .certificate_file = "/a.crt",
                         .key_file = "/a.key",
                         .server_name = "prometheus",
                         .skips_verification = true}));
}

TEST_F(HttpConfigTest, HasTheHeadersOfPrometheus) {
  EXPECT_EQ(Config("authorization: {credentials: a}\n"
                   "http_headers:\n  X-Scope-OrgID: {values: [a|b]}\n  X-Key: {values: ['', 1]}\n")
                .fields,
            "Authorization: Bearer a\r\nX-Scope-OrgID: a|b\r\nX-Key: \r\nX-Key: 1\r\n");
}

TEST_F(HttpConfigTest, RefusesWhatFramesARequest) {
  for (const char* const yaml :
       {"http_headers: {'a b': {values: [a]}}", "http_headers: {'a:': {values: [a]}}",
        "http_headers: {'': {values: [a]}}", "http_headers: {A: {values: [\"a\\r\\nHost: b\"]}}",
        "http_headers: {\"a\\r\\nHost\": {values: [a]}}",
        "authorization: {credentials: \"a\\r\\nHost: b\"}"})
    EXPECT_EQ(FaultOf(yaml), "a header or the login has a character that HTTP does not carry");
}

TEST_F(HttpConfigTest, RefusesWhatWouldHaveNoEffect) {
  EXPECT_EQ(FaultOf("oauth2: {client_id: a}"), "'oauth2' of the file is not supported");
  EXPECT_EQ(FaultOf("tls_config: {ca: abc}"), "'ca' of tls_config is not supported");
  EXPECT_EQ(FaultOf("http_headers: {A: {value: [a]}}"),
            "'value' of the header 'A' is not supported");
  EXPECT_EQ(FaultOf("http_headers: {A: {values: a}}"), "values of the header 'A' is no list");
  EXPECT_NE(FaultOf("http_headers: [a]"), "");
  EXPECT_EQ(FaultOf("a"), "the file has no keys");
  EXPECT_EQ(FaultOf("authorization: {credentials: a}\nbasic_auth: {username: a}"),
            "it has more than one login");
  EXPECT_EQ(FaultOf("authorization: {credentials: a, credentials_file: b}"),
            "it has both 'credentials' and 'credentials_file'");
  EXPECT_EQ(FaultOf("tls_config: {cert_file: a}"),
            "cert_file and key_file of tls_config need each other");
  EXPECT_NE(FaultOf("a: ["), "");
}

}  // namespace
}  // namespace nccl_exporter::exporter
