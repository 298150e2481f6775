// SPDX-License-Identifier: Apache-2.0
// Promises that compare a header with the same header written otherwise.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "exporter/exposition/negotiation.h"
#include "exporter/testing/text_fuzz.h"

namespace nccl_exporter::exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "accept_fuzz: broken promise: %s\n", promise);
  std::abort();
}

std::string_view TakeLine(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

std::string Replaced(std::string_view text, char from, std::string_view to) {
  std::string replaced;
  for (const char character : text) {
    if (character == from) {
      replaced += to;
    } else {
      replaced += character;
    }
  }
  return replaced;
}

bool Contains(std::string_view text, std::string_view part) {
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const auto same = [&](char a, char b) { return lower(a) == lower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

void CheckAccept(std::string_view accept) {
  const Format format = NegotiateFormat(accept);
  const std::string text(accept);
  Require(format != Format::kOpenMetrics || Contains(accept, "application/openmetrics-text"),
          "OpenMetrics goes to those who name it");
  Require(format != Format::kProtobuf || (Contains(accept, "application/vnd.google.protobuf") &&
                                          Contains(accept, "io.prometheus.client.MetricFamily")),
          "protobuf goes to those who name it and its message");
  Require(NegotiateFormat(text + ",text/html") == format, "an unknown format changes nothing");
  Require(NegotiateFormat("application/openmetrics-text;q=0," + text) == format,
          "a refused format changes nothing");
  Require(NegotiateFormat(text + ",application/openmetrics-text;q=2") == format,
          "a quality above 1 does not win");
  Require(NegotiateFormat(Replaced(accept, ',', " ,\t")) == format,
          "blanks around commas change nothing");
  Require(NegotiateFormat(Replaced(accept, ';', " ;\t")) == format,
          "blanks around semicolons change nothing");
  Require(NegotiateFormat(text + ',' + text) == format, "saying it twice changes nothing");
}

void CheckEncoding(std::string_view accept_encoding) {
  const bool is_accepted = AcceptsGzip(accept_encoding);
  Require(!is_accepted || Contains(accept_encoding, "gzip") || Contains(accept_encoding, "*"),
          "gzip goes to those who name it, or everything");
  Require(!AcceptsGzip(std::string(accept_encoding) + ",gzip;q=0"), "the last word on gzip counts");
}

void CheckTimeout(std::string_view timeout) {
  const auto budget = ScrapeBudget(timeout);
  Require(!budget || (budget->count() >= 0 && *budget < std::chrono::hours(24)),
          "a budget is a time to wait");
}

}  // namespace

// The input's first line is an Accept header, the second Accept-Encoding, the third the scrape
// timeout.
void CheckInput(std::string_view input) {
  CheckAccept(TakeLine(input));
  CheckEncoding(TakeLine(input));
  CheckTimeout(TakeLine(input));
}

}  // namespace nccl_exporter::exporter::fuzz
