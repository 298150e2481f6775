// SPDX-License-Identifier: Apache-2.0
// Why a request is not answered as it asks: the label values of
// nccl_exporter_requests_refused_total.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "proto/code_table.h"

namespace nccl_exporter::exporter {

enum class Refusal : uint8_t {
  kScrapesPerAddress,
  kAnswerBytes,
  kConnectionsPerAddress,
  kConnectionLimit,
  kScrapeTimeout,
  kRequestTooLarge,
  kUnreadableRequest,
  kAmbiguousRequest,
  kForeignHost,
  kSlowClient,
  kUnauthorized,
  kPasswordChecks,
  kPasswordChecksInAll,
  kCount
};
inline constexpr size_t kRefusalCount = kCountOf<Refusal>;
inline constexpr CodeTable<Refusal> kRefusals{{
    {Refusal::kScrapesPerAddress, "scrapes_per_address",
     "as many scrapes of the address as may be answered at a time were being answered"},
    {Refusal::kAnswerBytes, "answer_bytes",
     "answers that clients had not taken yet had all the memory for answers: the one that had been "
     "sent the longest gave way, or the new one was refused"},
    {Refusal::kConnectionsPerAddress, "connections_per_address",
     "too many connections from one address: one was closed, or gave way before its request was "
     "complete"},
    {Refusal::kConnectionLimit, "connection_limit",
     "too many connections: one was closed, or gave way before it had its answer"},
    {Refusal::kScrapeTimeout, "scrape_timeout",
     "no answer within what X-Prometheus-Scrape-Timeout-Seconds allows"},
    {Refusal::kRequestTooLarge, "request_too_large", "address or headers longer than their limits"},
    {Refusal::kUnreadableRequest, "unreadable_request",
     "no HTTP behind its first line, or not complete within the idle limit"},
    {Refusal::kAmbiguousRequest, "ambiguous_request",
     "a length or a path that a proxy in front may read in another way"},
    {Refusal::kForeignHost, "foreign_host", "a host that --web.allowed-host does not name"},
    {Refusal::kSlowClient, "slow_client",
     "the client did not take the answer, or a part of it, in time"},
    {Refusal::kUnauthorized, "unauthorized", "no password, or a wrong one"},
    {Refusal::kPasswordChecks, "password_checks",
     "another password of the address was waiting to be checked"},
    {Refusal::kPasswordChecksInAll, "password_checks_in_all",
     "as many passwords as may wait were waiting to be checked, of addresses that had tried fewer"},
}};
static_assert(IsInOrder(kRefusals));

// Called by any thread.
using RefusalCounter = std::function<void(Refusal)>;

}  // namespace nccl_exporter::exporter
