// SPDX-License-Identifier: Apache-2.0
// Variables of OpenTelemetry: which holds, what is refused, and that flags override them.
#include "exporter/otlp/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

namespace nccl_exporter::exporter::otlp {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

Settings Completed(const Environment& environment, Settings settings = {}) {
  Complete(settings, [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
  return settings;
}

std::string FaultOf(const std::string& name, const std::string& value) {
  try {
    Completed({{name, value}});
    return "";
  } catch (const std::runtime_error& wrong) {
    return wrong.what();
  }
}

TEST(SettingsTest, HaveTheDefaultsOfOpenTelemetryAndOurInterval) {
  const Settings settings = Completed({});
  EXPECT_EQ(settings.endpoint->Text(), "http://localhost:4318/v1/metrics");
  EXPECT_EQ(settings.timeout, milliseconds(10000));
  EXPECT_EQ(settings.interval, milliseconds(15000));
  EXPECT_EQ(settings.compression, "gzip");
  EXPECT_EQ(settings.fields, "");
  EXPECT_EQ(settings.tls, TlsSettings());
}

TEST(SettingsTest, ThePathFollowsAnAddressOfAllSignalsOnly) {
  const auto endpoint = [](const std::string& name, const std::string& url) {
    return Completed({{name, url}}).endpoint->Text();
  };
  const std::string all = "OTEL_EXPORTER_OTLP_ENDPOINT";
  EXPECT_EQ(endpoint(all, "https://a"), "https://a:443/v1/metrics");
  EXPECT_EQ(endpoint(all, "http://a:1/otlp/"), "http://a:1/otlp/v1/metrics");
  EXPECT_EQ(endpoint(all, "http://a:1/otlp/v1/metrics"), "http://a:1/otlp/v1/metrics");
  const std::string of_metrics = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
  EXPECT_EQ(endpoint(of_metrics, "http://a:1/x"), "http://a:1/x");
  EXPECT_EQ(endpoint(of_metrics, "http://a:1"), "http://a:1");
  EXPECT_EQ(Completed({{all, "http://a"}, {of_metrics, "http://b"}}).endpoint->host, "b");
  EXPECT_EQ(Completed({{all, "http://a"}, {of_metrics, ""}}).endpoint->host, "a");
}

TEST(SettingsTest, FlagsOverrideVariables) {
  std::string fault;
  const Settings flags{
      .endpoint = EndpointAt("http://flag", fault),
      .timeout = milliseconds(1),
      .interval = milliseconds(2),
      .compression = "none",
      .fields = "A: b\r\n",
      .tls = {.ca_file = "flag.pem", .certificate_file = "", .key_file = "", .server_name = ""}};
  const Settings settings = Completed({{"OTEL_EXPORTER_OTLP_ENDPOINT", "wrong"},
                                       {"OTEL_EXPORTER_OTLP_TIMEOUT", "wrong"},
                                       {"OTEL_METRIC_EXPORT_INTERVAL", "wrong"},
                                       {"OTEL_EXPORTER_OTLP_COMPRESSION", "wrong"},
                                       {"OTEL_EXPORTER_OTLP_HEADERS", "wrong"},
                                       {"OTEL_EXPORTER_OTLP_CERTIFICATE", "other.pem"}},
                                      flags);
  EXPECT_EQ(settings.endpoint->host, "flag");
  EXPECT_EQ(settings.timeout, milliseconds(1));
  EXPECT_EQ(settings.interval, milliseconds(2));
  EXPECT_EQ(settings.compression, "none");
  EXPECT_EQ(settings.fields, "A: b\r\n");
  EXPECT_EQ(settings.tls.ca_file, "flag.pem");
}

TEST(SettingsTest, FilesOfTlsAreThoseOfTheVariables) {
  const Settings settings = Completed({{"OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"},
                                       {"OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE", "c.pem"},
                                       {"OTEL_EXPORTER_OTLP_CLIENT_KEY", "c.key"}});
  EXPECT_EQ(settings.tls.ca_file, "ca.pem");
  EXPECT_EQ(settings.tls.certificate_file, "c.pem");
  EXPECT_EQ(settings.tls.key_file, "c.key");
}

TEST(SettingsTest, HeadersAreEncodedPairs) {
  const auto fields = [](const std::string& text) {
    return Completed({{"OTEL_EXPORTER_OTLP_HEADERS", text}}).fields;
  };
  EXPECT_EQ(fields("Authorization=Bearer%20a%3D"), "Authorization: Bearer a=\r\n");
  EXPECT_EQ(fields(" a = b , c=d=e,"), "a: b\r\nc: d=e\r\n");
  EXPECT_EQ(fields("a="), "a: \r\n");
  const std::string name = "OTEL_EXPORTER_OTLP_HEADERS";
  for (const char* const wrong :
       {"a", "=b", "a=%", "a=%4", "a=%zz", "a=b%0aHost:c", "a b=c", "a:b=c", "a=\x80", "a=b,,c=d"})
    EXPECT_THAT(FaultOf(name, wrong), HasSubstr(name + " is wrong: ")) << wrong;
  EXPECT_EQ(FaultOf(name, "secret").find("secret"), std::string::npos);
}

TEST(SettingsTest, WhatIsNotSupportedIsRefused) {
  const std::string all = "OTEL_EXPORTER_OTLP_";
  EXPECT_EQ(FaultOf(all + "METRICS_TEMPORALITY_PREFERENCE", "CUMULATIVE"), "");
  EXPECT_EQ(FaultOf(all + "METRICS_TEMPORALITY_PREFERENCE", "lowmemory"),
            all + "METRICS_TEMPORALITY_PREFERENCE is wrong: only cumulative is supported");
  EXPECT_EQ(FaultOf(all + "PROTOCOL", "http/protobuf"), "");
  EXPECT_NE(FaultOf(all + "PROTOCOL", "http/json"), "");
  EXPECT_NE(FaultOf(all + "METRICS_PROTOCOL", "grpc"), "");
  EXPECT_NE(FaultOf(all + "ENDPOINT", "collector:4318"), "");
  for (const char* const wrong : {"0", "-1", "10s", "1e3", "99999999999"}) {
    EXPECT_NE(FaultOf(all + "TIMEOUT", wrong), "") << wrong;
    EXPECT_NE(FaultOf("OTEL_METRIC_EXPORT_INTERVAL", wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter::otlp
