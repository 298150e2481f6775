// SPDX-License-Identifier: Apache-2.0
// Why a request is not answered as it asks: the label values of nccl_exporter_requests_refused_total.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace nccl_exporter {

enum class Refusal : uint8_t {
  kConcurrentScrapes,      // kMaxConcurrentScrapes
  kConnectionsPerAddress,  // kConnectionsPerAddress: closed, or gave way before its request was complete
  kConnectionLimit,        // kConnectionLimit: likewise
  kScrapeTimeout,          // no page within what X-Prometheus-Scrape-Timeout-Seconds allows
  kRequestTooLarge,        // kUrlLimitBytes, kHeadersLimitBytes
  kUnreadableRequest,      // no HTTP, no TLS, or not complete within kIdleLimit
  kSlowClient,             // did not take the answer within kIdleLimit a part, or kAnswerLimit
  kUnauthorized,           // no password, or a wrong one
  kPasswordChecks,         // kMaxWaitingChecks
  kCount
};
inline constexpr size_t kRefusalCount = static_cast<size_t>(Refusal::kCount);
inline constexpr std::array<std::string_view, kRefusalCount> kRefusals{
    "concurrent_scrapes", "connections_per_address", "connection_limit", "scrape_timeout",
    "request_too_large",  "unreadable_request",      "slow_client",      "unauthorized",
    "password_checks"};

// Called by any thread.
using RefusalCounter = std::function<void(Refusal)>;

}  // namespace nccl_exporter
