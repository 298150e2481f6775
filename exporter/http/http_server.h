// SPDX-License-Identifier: Apache-2.0
// The HTTP server: GET and HEAD of HTTP/1, with or without TLS, within limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/http/listening_sockets.h"
#include "exporter/http/open_connections.h"
#include "exporter/http/refusal.h"

struct MHD_Daemon;

namespace nccl_exporter::exporter {

class TlsContext;

struct HttpRequest {
  std::string path;             // decoded, without scheme, host and query
  std::string accept;           // several header lines joined by commas; empty where there is none
  std::string accept_encoding;  // likewise
  std::string scrape_timeout = {};  // X-Prometheus-Scrape-Timeout-Seconds, likewise
  std::string if_none_match = {};   // likewise
  std::string authorization = {};   // likewise
  std::string host = {};            // of an absolute target or of Host, with its port; may be empty
  std::string client = {};          // whose limits it takes: ClientText() of its peer
  // Parameters of the query, decoded, in their order.
  std::vector<std::pair<std::string, std::string>> query = {};
  // The handler calls it with true while a password is checked, and with false then: in between the
  // connection gives way to another one.
  std::function<void(bool)> on_check = [](bool) {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;  // further ones
  std::string body;
  std::shared_ptr<const std::string> shared_body = nullptr;  // if set, sent in place of `body`
  std::shared_ptr<const void> until_sent = nullptr;  // released when the answer is sent or given up

  std::string_view bytes() const { return shared_body ? *shared_body : body; }
};

inline HttpResponse TextResponse(int status, std::string text) {
  return {.status = status, .headers = {}, .body = std::move(text)};
}
// Status 503, after which a client may ask again at once.
inline HttpResponse BusyResponse(std::string why) {
  return {.status = 503, .headers = {{"Retry-After", "1"}}, .body = std::move(why)};
}

// Called by several threads at a time, for GET and HEAD alike.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// A longer URL gets status 414, more headers 431: Prometheus sends some 500 bytes, browsers with
// their cookies a few KiB.
inline constexpr size_t kUrlLimitBytes = 2048;
inline constexpr size_t kHeadersLimitBytes = 8192;

// Memory of a connection for its request, half of it for the part that is not read yet. If a
// request needs more, the library answers with 400, 414 or 431.
inline constexpr size_t kRequestBufferBytes = 32768;

// A client whose first request is not complete, TLS handshake included, or that takes nothing of
// its answer for so long is cut off.
inline constexpr std::chrono::seconds kIdleLimit{5};

// One that has been answered may ask again within this time, by the same connection: scrapes each
// minute and more often need one TLS handshake.
inline constexpr std::chrono::seconds kKeepAliveLimit{75};

// A client must have taken its answer within this time, which is more than the usual scrape timeout
// of 10 s. The largest page without compression takes it at 1 MB/s.
inline constexpr std::chrono::seconds kAnswerLimit{15};

// Connections of one address at a time: more than two Prometheus servers and some browsers behind
// one address need, and well below the connections that there may be.
inline constexpr int kConnectionsPerAddress = 24;

// Connections at a time. Each has a thread, which sleeps while it waits for a request, a page or a
// client, and pages are made by one other thread (page_builder.h), so that these cost memory only:
// some 40 KB each, 70 by TLS. Which one gives way to the next: OpenConnections::MakeRoom(). So
// neither half requests, nor connections that are kept, nor slow readers keep anybody out.
inline constexpr int kConnectionLimit = 64;

class HttpServer {
 public:
  explicit HttpServer(
      HttpHandler handler, RefusalCounter on_refusal = [](Refusal) {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds all addresses (see ListeningSockets::Bind) and serves, by TLS if given one, which
  // outlives this object. If one of them cannot be bound, serves none and returns what is wrong;
  // else returns an empty string. At most one start.
  std::string Start(const std::vector<std::string>& addresses, TlsContext* tls = nullptr);

  // Returns once the requests in progress are answered, or cut off after some seconds, and the
  // addresses are closed.
  void Stop();

  // Cuts the answer that has been sent the longest, because there is no memory for another one.
  // False if none is being sent. Any thread.
  bool GiveWay() { return open_.GiveWay(Refusal::kAnswerBytes); }

  // Where it listens, in the order of the addresses.
  std::vector<int> ports() const { return listening_.ports(); }
  std::vector<std::string> names() const { return listening_.names(); }

 private:
  struct Calls;

  const HttpHandler handler_;
  const RefusalCounter on_refusal_;
  TlsContext* tls_ = nullptr;
  ListeningSockets listening_;
  OpenConnections open_{{.all = kConnectionLimit,
                         .of_one_address = kConnectionsPerAddress,
                         .request = kIdleLimit,
                         .idle = kKeepAliveLimit,
                         .part = kIdleLimit,
                         .answer = kAnswerLimit},
                        on_refusal_};
  std::vector<MHD_Daemon*> daemons_;  // one for each socket
};

}  // namespace nccl_exporter::exporter
