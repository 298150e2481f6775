// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "exporter/findings/words.h"
#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::json;

constexpr int kOk = 200, kUnauthorized = 401, kForbidden = 403, kNotFound = 404;
// An answer has five levels. More would only cost memory.
constexpr int kMostLevels = 16;

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const unsigned char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' || c == '~';
    escaped += is_plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return escaped;
}

// Why there is no vector in it; empty where there may be.
std::string FaultOf(const PlainAnswer& answer, const std::string& where) {
  if (!answer.is_connected) return fmt::format("cannot reach {}: {}", where, answer.fault);
  if (answer.status == 0 && !answer.status_line.empty())
    return fmt::format("the answer of {} is no HTTP", where);
  if (answer.status == kUnauthorized)
    return fmt::format("{} asks for a login (401); give it with --http.config.file", where);
  if (answer.status == kForbidden) return where + " refuses this login (403)";
  if (answer.status == kNotFound)
    return where + " has no /api/v1/query (404); is a prefix missing?";
  // One that refuses may have no whole answer: its status says enough.
  if (!answer.fault.empty() && (answer.status == 0 || answer.status == kOk))
    return fmt::format("{}: {}", where, answer.fault);
  return "";
}

double NumberOf(const std::string& text) {
  const std::string_view digits = std::string_view(text).substr(text.starts_with('+') ? 1 : 0);
  const std::optional<double> number = NumberIn<double>(digits);
  if (!number) throw std::invalid_argument("a value is no number");
  return *number;
}

Point PointOf(const Json& value) {
  return {.time = value.at(0).get<double>(), .value = NumberOf(value.at(1).get<std::string>())};
}

Sample SampleOf(const Json& one, bool is_matrix) {
  Sample sample;
  for (const auto& [name, value] : one.at("metric").items())
    sample.labels.emplace(name, value.get<std::string>());
  if (is_matrix) {
    for (const Json& value : one.at("values")) sample.points.push_back(PointOf(value));
  }
  const Point last = !is_matrix              ? PointOf(one.at("value"))
                     : sample.points.empty() ? Point()
                                             : sample.points.back();
  sample.time = last.time;
  sample.value = last.value;
  return sample;
}

// Throws if `answer` is not as the API has it.
Samples SamplesOf(const Json& answer) {
  const Json& data = answer.at("data");
  const bool is_matrix = data.at("resultType") == "matrix";
  if (!is_matrix && data.at("resultType") != "vector")
    throw std::invalid_argument("it is neither a vector nor a matrix");
  Samples samples;
  for (const Json& one : data.at("result")) samples.push_back(SampleOf(one, is_matrix));
  std::ranges::stable_sort(samples, {}, &Sample::labels);
  return samples;
}

std::vector<std::string> WarningsOf(const Json& answer) {
  std::vector<std::string> warnings;
  const auto add = [&](const std::string& text) {
    if (warnings.size() < kMostWarnings) warnings.push_back(PrintablePath(text));
  };
  const auto partial = answer.find("isPartial");
  if (partial != answer.end() && *partial == true) add("some storage nodes did not answer");
  const auto texts = answer.find("warnings");
  if (texts == answer.end() || !texts->is_array()) return warnings;
  for (const Json& text : *texts) {
    if (text.is_string()) add(text.get<std::string>());
  }
  return warnings;
}

}  // namespace

const std::string& LabelIn(const SampleLabels& labels, const std::string& name) {
  static const std::string kNone;
  const auto found = labels.find(name);
  return found == labels.end() ? kNone : found->second;
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? "\\n" : std::string(1, c);
  }
  return quoted + '"';
}

QueryAnswer SamplesIn(const PlainAnswer& answer, const std::string& where) {
  const auto refuse_depth = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostLevels) throw std::invalid_argument("it has too many levels");
    return true;
  };
  std::string fault = FaultOf(answer, where);
  if (!fault.empty()) throw std::runtime_error(PrintablePath(fault));
  try {
    const Json json = Json::parse(answer.body, refuse_depth);
    if (json.value("status", "") == "success" && answer.status == kOk)
      return {.samples = SamplesOf(json), .warnings = WarningsOf(json)};
    fault = fmt::format("{} answers: {}", where, json.value("error", "no reason"));
  } catch (const std::exception& wrong) {
    fault = answer.status == kOk
                ? fmt::format("the answer of {} is not understood: {}", where, wrong.what())
                : fmt::format("{} answers with status {}", where, answer.status);
  }
  throw std::runtime_error(PrintablePath(fault));
}

AskPrometheus PrometheusAt(HttpAddress address, HttpConfig config) {
  return [address = std::move(address), config = std::move(config)](const std::string& query,
                                                                    double time) {
    const std::string at = time > 0 ? fmt::format("&time={:.3f}", time) : "";
    const PlainAnswer answer = PlainGet({.server = address,
                                         .path = "/api/v1/query?query=" + Escaped(query) + at,
                                         .patience = kQueryPatience,
                                         .most_bytes = kMostQueryBytes,
                                         .host_field = address.HostField(),
                                         .fields = config.fields,
                                         .tls = config.tls});
    return SamplesIn(answer, address.Text());
  };
}

}  // namespace nccl_exporter::exporter
