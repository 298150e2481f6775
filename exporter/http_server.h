// SPDX-License-Identifier: Apache-2.0
// The HTTP server, and the only place that knows which library it is made of.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/refusal.h"

namespace nccl_exporter {

struct HttpRequest {
  std::string path;                 // decoded, without the query
  std::string accept;               // several header lines joined by commas; empty where there is none
  std::string accept_encoding;      // likewise
  std::string scrape_timeout = {};  // X-Prometheus-Scrape-Timeout-Seconds, likewise
  std::string if_none_match = {};   // likewise
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;  // further ones
  std::string body;
  std::shared_ptr<const std::string> shared_body = nullptr;  // if set, sent in place of `body`
  std::shared_ptr<const void> until_sent = nullptr;          // released when the answer is sent or given up

  std::string_view bytes() const { return shared_body ? *shared_body : body; }
};

// Called by several threads at a time, for GET and HEAD alike.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// A longer URL gets status 414, more headers 431: Prometheus sends some 500 bytes, browsers with their cookies a few
// KiB.
inline constexpr size_t kUrlLimitBytes = 2048;
inline constexpr size_t kHeadersLimitBytes = 8192;

// What a request may take in memory. One that is larger still counts as unreadable and gets status 400.
inline constexpr size_t kRequestBufferBytes = 16384;

// A client that sends nothing of a request that it began, or takes nothing of its answer, for so long is cut off.
inline constexpr std::chrono::seconds kIdleLimit{5};

// A client must have taken its answer within this time, which is more than anyone's scrape timeout.
inline constexpr std::chrono::seconds kAnswerLimit{60};

// Requests of one address that are in progress at a time: more than two Prometheus servers behind one address need, and
// well below the threads that there are. The next one gets status 429.
inline constexpr int kConnectionsPerAddress = 24;

// Connections served at a time; further ones wait. Threads sleep while they wait for a page or a client, and pages are
// made by one other thread (page_builder.h), so that these cost memory only: some 30 KB each.
inline constexpr int kConnectionLimit = 64;

class HttpServer {
 public:
  explicit HttpServer(
      HttpHandler handler, RefusalCounter on_refusal = [](Refusal) {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds all addresses (`host:port`, `:port` for all IPv4 addresses, port 0 for any free one) and serves. If one of
  // them cannot be bound, serves none and returns what is wrong; else returns an empty string. At most once.
  std::string Start(const std::vector<std::string>& addresses);

  // Returns once the requests in progress are answered, or cut off after some seconds, and the addresses are closed.
  void Stop();

  // Where it listens, in the order of the addresses.
  std::vector<int> ports() const;

 private:
  struct Library;
  const std::unique_ptr<Library> library_;
};

}  // namespace nccl_exporter
