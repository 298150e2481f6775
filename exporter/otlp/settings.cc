// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/settings.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter::otlp {
namespace {

constexpr const char* kMetricsPath = "/v1/metrics";
constexpr const char* kOfMetrics = "OTEL_EXPORTER_OTLP_METRICS_";
constexpr const char* kOfAll = "OTEL_EXPORTER_OTLP_";
constexpr const char* kInterval = "OTEL_METRIC_EXPORT_INTERVAL";

// Values are not shown: those of headers are secrets.
void Require(bool holds, const std::string& name, const std::string& why) {
  if (!holds) throw std::runtime_error(fmt::format("{} is wrong: {}", name, why));
}

std::string Decoded(std::string_view text, const std::string& name) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const auto code = NumberIn<uint8_t>(text.substr(i + 1, 2), 16);
      Require(code && text.size() >= i + 3, name, "a % is not followed by two digits");
      c = static_cast<char>(*code);
      i += 2;
    }
    Require(c >= ' ' && c <= '~', name, "a header has a character that it cannot have");
    if (c != ' ' || !decoded.empty()) decoded += c;
  }
  return decoded.substr(0, decoded.find_last_not_of(' ') + 1);
}

// "key=value,key=value", as W3C Baggage has it.
std::string HeadersIn(std::string_view text, const std::string& name) {
  std::string fields;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string key = Decoded(pair.substr(0, equals), name);
    Require(!key.empty() && key.find_first_of(" :") == std::string::npos && equals != pair.size(),
            name, "it is no list of key=value");
    fields += key + ": " + Decoded(pair.substr(equals + 1), name) + "\r\n";
  }
  return fields;
}

std::chrono::milliseconds MillisecondsIn(const std::string& text, const std::string& name) {
  const auto number = NumberIn<uint32_t>(text);
  Require(number && *number != 0, name, "it is no number of milliseconds");
  return std::chrono::milliseconds(*number);
}

}  // namespace

std::optional<HttpAddress> EndpointAt(const std::string& url, std::string& fault, bool is_whole) {
  std::optional<HttpAddress> address = ParseHttpAddress(url, fault);
  if (address && !is_whole && !address->prefix.ends_with(kMetricsPath))
    address->prefix += kMetricsPath;
  return address;
}

void Complete(Settings& settings, const Variables& variables) {
  std::string name;  // of the latest variable
  const auto value_of = [&](const std::string& variable, const char* otherwise) {
    const char* const text = variables((name = variable).c_str());
    return std::string(text == nullptr || *text == '\0' ? otherwise : text);
  };
  const auto value = [&](const std::string& what, const char* otherwise = "") {
    const std::string text = value_of(kOfMetrics + what, "");
    return text.empty() ? value_of(kOfAll + what, otherwise) : text;
  };
  for (const auto& [what, supported] :
       {std::pair{"PROTOCOL", "http/protobuf"}, std::pair{"TEMPORALITY_PREFERENCE", "cumulative"}})
    Require(strcasecmp(value(what, supported).c_str(), supported) == 0, name,
            fmt::format("only {} is supported", supported));
  if (!settings.endpoint) {
    std::string fault;
    const std::string url = value("ENDPOINT", kDefaultEndpoint);
    settings.endpoint = EndpointAt(url, fault, name.starts_with(kOfMetrics));
    Require(settings.endpoint.has_value(), name, fault);
  }
  if (!settings.timeout) settings.timeout = MillisecondsIn(value("TIMEOUT", "10000"), name);
  if (!settings.interval) settings.interval = MillisecondsIn(value_of(kInterval, "15000"), name);
  if (settings.compression.empty()) settings.compression = value("COMPRESSION", "gzip");
  Require(settings.compression == "gzip" || settings.compression == "none", name,
          "it is neither gzip nor none");
  if (settings.fields.empty()) settings.fields = HeadersIn(value("HEADERS"), name);
  if (settings.tls == TlsSettings()) {
    settings.tls.ca_file = value("CERTIFICATE");
    settings.tls.certificate_file = value("CLIENT_CERTIFICATE");
    settings.tls.key_file = value("CLIENT_KEY");
  }
}

}  // namespace nccl_exporter::exporter::otlp
