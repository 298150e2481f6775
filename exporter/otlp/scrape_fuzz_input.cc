// SPDX-License-Identifier: Apache-2.0
// Promises about a scrape that becomes a request, and about an answer to it, whatever their bytes.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/client/plain_get.h"
#include "exporter/exposition/plain_families.h"
#include "exporter/otlp/metrics_request.h"
#include "exporter/otlp/pusher.h"
#include "exporter/testing/text_fuzz.h"

namespace nccl_exporter::exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "scrape_fuzz: broken promise: %s\n", promise);
  std::abort();
}

void CheckScrape(std::string_view bytes, otlp::HistogramForm form) {
  // A label of two bytes becomes an attribute of six, and a span of a few bytes up to 4,096
  // buckets.
  constexpr size_t kMostGrowth = 4096;
  const std::optional<std::vector<PlainFamily>> families = ParseFamilies(bytes);
  if (!families) return;
  otlp::MetricsRequests requests({}, form);
  const std::string nothing = requests.Make({}, 1);
  const std::string request = requests.Make(*families, 2);
  Require(request.size() <= nothing.size() + 16 + bytes.size() * kMostGrowth,
          "a request is not much longer than its scrape");
  requests.Make({}, 3);
  Require(requests.Make({}, 4) == nothing, "a series is stale once");
}

}  // namespace

void CheckInput(std::string_view input) {
  CheckScrape(input, otlp::HistogramForm::kExplicit);
  CheckScrape(input, otlp::HistogramForm::kExponential);
  PlainAnswer answer;
  answer.status = 200;
  answer.body = input;
  Require(otlp::OutcomeOf(answer, 0).end == otlp::PushEnd::kAccepted, "a body changes no status");
  answer.status = 503;
  answer.head = "HTTP/1.1 503 X\r\nRetry-After: " + std::string(input.substr(0, 40));
  const otlp::PushOutcome outcome = otlp::OutcomeOf(answer, 0);
  Require(outcome.reason.size() <= 512, "a reason is short");
  Require(!outcome.retry_after || (outcome.retry_after->count() >= 0 &&
                                   *outcome.retry_after <= otlp::kLongestRetryAfter),
          "a pause has an end");
}

}  // namespace nccl_exporter::exporter::fuzz
