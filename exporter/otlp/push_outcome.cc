// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/push_outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "exporter/exposition/protobuf_fields.h"
#include "exporter/text/number_in.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter::otlp {
namespace {

constexpr size_t kReasonLimitBytes = 512;
constexpr std::array kAgain{429, 502, 503, 504};

std::string Printable(std::string_view text) { return ValidUtf8(text, kReasonLimitBytes, "?"); }

// A number of seconds, or a date of HTTP.
std::optional<std::chrono::seconds> RetryAfterIn(const std::string& field, int64_t now) {
  int64_t seconds = 0;
  std::tm date{};
  if (const auto number = NumberIn<uint32_t>(field)) {
    seconds = *number;
  } else if (::strptime(field.c_str(), "%a, %d %b %Y %H:%M:%S", &date) != nullptr) {
    seconds = ::timegm(&date) - now;
  } else {
    return std::nullopt;
  }
  return std::clamp(std::chrono::seconds(seconds), std::chrono::seconds(0), kLongestRetryAfter);
}

// ExportMetricsServiceResponse: its partial_success has the number of rejected points and why.
PushOutcome Accepted(std::string_view body) {
  const wire::Pair response = wire::PairIn(body), partial = wire::PairIn(response.first_bytes);
  if (!response.is_right || !partial.is_right) return {.end = PushEnd::kAccepted};
  return {.end = PushEnd::kAccepted,
          .reason = Printable(partial.second_bytes),
          .rejected_points = partial.first};
}

}  // namespace

PushOutcome OutcomeOf(const PlainAnswer& answer, int64_t now) {
  // The status says enough, also where the answer is not whole.
  if (answer.status == 0)
    return {.end = PushEnd::kTryAgain,
            .reason = answer.fault.empty() ? "the answer is no HTTP" : Printable(answer.fault)};
  if (answer.status / 100 == 2) return Accepted(answer.body);
  // The body may be google.rpc.Status, whose message is its second field, or a text.
  const wire::Pair status = wire::PairIn(answer.body);
  const std::string_view text = status.is_right ? status.second_bytes : answer.body;
  const bool is_again = std::ranges::count(kAgain, answer.status) != 0;
  return {.end = is_again ? PushEnd::kTryAgain : PushEnd::kRefused,
          .reason = Printable(
              fmt::format("status {}{}{}", answer.status, text.empty() ? "" : ": ", text)),
          .retry_after = RetryAfterIn(FieldOf(answer.head, "retry-after"), now)};
}

}  // namespace nccl_exporter::exporter::otlp
