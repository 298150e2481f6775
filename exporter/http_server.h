// SPDX-License-Identifier: Apache-2.0
// The HTTP server, and the only place that knows which library it is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nccl_exporter {

struct HttpRequest {
  std::string path;             // decoded, without the query
  std::string accept;           // several header lines joined by commas; empty where there is none
  std::string accept_encoding;  // likewise
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;  // further ones
  std::string body;
};

// Called by several threads at a time, for GET and HEAD alike.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

class HttpServer {
 public:
  explicit HttpServer(HttpHandler handler);
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
