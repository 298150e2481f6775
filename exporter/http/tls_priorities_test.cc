// SPDX-License-Identifier: Apache-2.0
#include "exporter/http/tls_priorities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::exporter {
namespace {

std::string PrioritiesOf(const TlsConfig& config) {
  std::string error;
  const std::string text = TlsPriorities(config, error);
  EXPECT_EQ(error, "");
  return text;
}

std::string ErrorOf(const TlsConfig& config) {
  std::string error;
  EXPECT_EQ(TlsPriorities(config, error), "");
  return error;
}

TEST(TlsPrioritiesTest, AllowsTheVersionsFromTheHighestDown) {
  TlsConfig config;
  EXPECT_EQ(PrioritiesOf(config), "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE");
  config.min_version = TlsVersion::kTls10;
  config.max_version = TlsVersion::kTls12;
  config.prefers_server_cipher_suites = false;
  EXPECT_EQ(PrioritiesOf(config), "NORMAL:-VERS-ALL:+VERS-TLS1.2:+VERS-TLS1.1:+VERS-TLS1.0");
}

TEST(TlsPrioritiesTest, AllowsTheNamedCurvesInTheirOrder) {
  TlsConfig config;
  config.curves = {"X25519", "CurveP384"};
  EXPECT_THAT(PrioritiesOf(config),
              testing::HasSubstr(":-GROUP-ALL:+GROUP-X25519:+GROUP-SECP384R1:"));
}

TEST(TlsPrioritiesTest, SaysWhatItDoesNotKnow) {
  TlsConfig config;
  config.curves = {"X25519", "CurveP1"};
  EXPECT_EQ(ErrorOf(config), "curve_preferences: unknown curve CurveP1");
}

}  // namespace
}  // namespace nccl_exporter::exporter
