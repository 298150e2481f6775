// SPDX-License-Identifier: Apache-2.0
// Promises about an answer to a query, whatever a server sends in place of Prometheus.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "exporter/cli/client/plain_get.h"
#include "exporter/cli/report/prometheus.h"
#include "exporter/testing/text_fuzz.h"

namespace nccl_exporter::exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "answer_fuzz: broken promise: %s\n", promise);
  std::abort();
}

// An answer comes in pieces: what is whole after one of them stays as it is.
void CheckPieces(std::string_view input, bool is_whole, const PlainAnswer& whole) {
  constexpr size_t kPieces = 8;
  for (size_t i = 1; i < kPieces; ++i) {
    PlainAnswer part;
    if (!TakeApart(input.substr(0, input.size() * i / kPieces), false, part)) continue;
    Require(is_whole, "an answer that was whole stays whole");
    Require(part.status == whole.status, "a status does not change");
    Require(part.body == whole.body, "a body does not change");
  }
}

}  // namespace

void CheckInput(std::string_view input) {
  PlainAnswer answer;
  answer.is_connected = true;
  const bool is_whole = TakeApart(input, true, answer);
  Require(is_whole || answer.body.empty(), "a part of an answer has no body");
  Require(answer.body.size() <= input.size(), "a body is not longer than what came");
  Require(answer.status >= 0 && answer.status < 1000, "a status has three digits");
  CheckPieces(input, is_whole, answer);
  if (!is_whole) answer.fault = "an answer without its end";
  const auto is_clean = [](const std::string& text) {
    return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7F; });
  };
  try {
    const QueryAnswer result = SamplesIn(answer, "http://prometheus:9090");
    Require(result.samples.empty() || (is_whole && answer.status == 200),
            "samples have a good answer");
    Require(result.warnings.size() <= kMostWarnings, "there are few warnings");
    Require(std::ranges::all_of(result.warnings, is_clean), "warnings have no control characters");
  } catch (const std::runtime_error& wrong) {
    Require(is_clean(wrong.what()), "a fault has no control characters");
  }
}

}  // namespace nccl_exporter::exporter::fuzz
