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

constexpr const char* kOfMetrics = "OTEL_EXPORTER_OTLP_METRICS_";
constexpr const char* kOfAll = "OTEL_EXPORTER_OTLP_";

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw std::runtime_error(fmt::format("{} is wrong: {}", name, why));
}

// Values are not shown: those of headers are secrets.
std::string Decoded(std::string_view text, const std::string& name) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const auto code = NumberIn<uint8_t>(text.substr(i + 1, 2), 16);
      if (!code || text.size() < i + 3) Refuse(name, "a % is not followed by two digits");
      c = static_cast<char>(*code);
      i += 2;
    }
    if (c < ' ' || c > '~') Refuse(name, "a header has a character that it cannot have");
    decoded += c;
  }
  const size_t begin = decoded.find_first_not_of(' ');
  return begin == std::string::npos
             ? ""
             : decoded.substr(begin, decoded.find_last_not_of(' ') + 1 - begin);
}

// "key=value,key=value", as W3C Baggage has it.
std::string HeadersIn(std::string_view text, const std::string& name) {
  std::string fields;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string key = Decoded(pair.substr(0, equals), name);
    if (key.empty() || key.find_first_of(" :") != std::string::npos || equals == pair.size())
      Refuse(name, "it is no list of key=value");
    fields += key + ": " + Decoded(pair.substr(equals + 1), name) + "\r\n";
  }
  return fields;
}

std::chrono::milliseconds MillisecondsIn(const std::string& text, const std::string& name) {
  const auto number = NumberIn<uint32_t>(text);
  if (!number || *number == 0) Refuse(name, "it is no number of milliseconds");
  return std::chrono::milliseconds(*number);
}

HttpAddress AddressIn(const std::string& url, const std::string& name, bool is_whole) {
  std::string fault;
  const auto address = is_whole ? ParseHttpAddress(url, fault) : EndpointAt(url, fault);
  if (!address) Refuse(name, fault);
  return *address;
}

}  // namespace

std::optional<HttpAddress> EndpointAt(const std::string& url, std::string& fault) {
  std::optional<HttpAddress> address = ParseHttpAddress(url, fault);
  if (address && !address->prefix.ends_with(kMetricsPath)) address->prefix += kMetricsPath;
  return address;
}

void Complete(Settings& settings, const Variables& variables) {
  std::string name;
  // The value of a variable, whose name is then in `name`.
  const auto value = [&](const char* what) {
    name = std::string(kOfMetrics) + what;
    if (std::string text = variables(name); !text.empty()) return text;
    name = std::string(kOfAll) + what;
    return variables(name);
  };
  for (const auto& [what, supported] : {std::pair{"PROTOCOL", "http/protobuf"},
                                        std::pair{"TEMPORALITY_PREFERENCE", "cumulative"}}) {
    const std::string text = value(what);
    if (!text.empty() && strcasecmp(text.c_str(), supported) != 0)
      Refuse(name, fmt::format("only {} is supported", supported));
  }
  if (!settings.endpoint) {
    const std::string url = value("ENDPOINT");
    settings.endpoint =
        AddressIn(url.empty() ? kDefaultEndpoint : url, name, name.starts_with(kOfMetrics));
  }
  if (!settings.timeout) {
    const std::string text = value("TIMEOUT");
    settings.timeout = text.empty() ? kDefaultTimeout : MillisecondsIn(text, name);
  }
  if (!settings.interval) {
    const std::string text = variables(name = "OTEL_METRIC_EXPORT_INTERVAL");
    settings.interval = text.empty() ? kDefaultInterval : MillisecondsIn(text, name);
  }
  if (!settings.compresses) {
    const std::string text = value("COMPRESSION");
    if (!text.empty() && text != "gzip" && text != "none")
      Refuse(name, "it is neither gzip nor none");
    settings.compresses = text != "none";
  }
  if (settings.fields.empty()) settings.fields = HeadersIn(value("HEADERS"), name);
  if (settings.tls == TlsSettings()) {
    settings.tls.ca_file = value("CERTIFICATE");
    settings.tls.certificate_file = value("CLIENT_CERTIFICATE");
    settings.tls.key_file = value("CLIENT_KEY");
  }
}

}  // namespace nccl_exporter::exporter::otlp
