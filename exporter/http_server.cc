// SPDX-License-Identifier: Apache-2.0
// HTTP by civetweb: every request goes to the handler, none to civetweb's own file server.
#include "exporter/http_server.h"

#include <civetweb.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <exception>
#include <map>
#include <mutex>

namespace nccl_exporter {
namespace {

// The answer's time is looked at between parts of this size.
constexpr size_t kPartBytes = 16384;
// How long a stop waits for answers in progress: well within the 30 s that Kubernetes gives.
constexpr std::chrono::seconds kDrainLimit{5};
constexpr size_t kMaxPorts = 64;  // more addresses than anyone listens at

std::string Header(const mg_request_info& request, std::string_view name) {
  std::string joined;
  for (int i = 0; i < request.num_headers; ++i) {
    const mg_header& header = request.http_headers[i];
    if (mg_strcasecmp(header.name, std::string(name).c_str()) != 0) continue;
    if (!joined.empty()) joined += ',';
    joined += header.value;
  }
  return joined;
}

size_t UrlBytes(const mg_request_info& request) {
  const auto bytes = [](const char* text) { return text == nullptr ? 0 : std::strlen(text); };
  return bytes(request.request_uri) + bytes(request.query_string);
}

size_t HeaderBytes(const mg_request_info& request) {
  size_t bytes = 0;
  for (int i = 0; i < request.num_headers; ++i) {
    bytes += std::strlen(request.http_headers[i].name) + std::strlen(request.http_headers[i].value);
  }
  return bytes;
}

std::string DateText() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc));
}

// Status line and headers. Not by civetweb's own functions, whose Date comes from gmtime(): a race between threads.
std::string HeadText(mg_connection* connection, const HttpResponse& response) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + ' ' +
                     mg_get_response_code_text(connection, response.status) + "\r\n";
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  add("Date", DateText());
  add("Connection", "close");
  add("Content-Type", response.content_type);
  add("Content-Length", std::to_string(response.bytes().size()));
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) add(name, value);
  return head += "\r\n";
}

// False where the client does not take the answer, or not in time.
bool Send(mg_connection* connection, const HttpResponse& response, bool with_body) {
  const auto deadline = std::chrono::steady_clock::now() + kAnswerLimit;
  const auto send = [&](std::string_view text) {
    while (!text.empty()) {
      const std::string_view part = text.substr(0, kPartBytes);
      if (std::chrono::steady_clock::now() > deadline) return false;
      if (mg_write(connection, part.data(), part.size()) != static_cast<int>(part.size())) return false;
      text.remove_prefix(part.size());
    }
    return true;
  };
  return send(HeadText(connection, response)) && (!with_body || send(response.bytes()));
}

HttpResponse Plain(int status, std::string body) { return {.status = status, .headers = {}, .body = std::move(body)}; }

HttpResponse Answer(const HttpHandler& handler, const mg_request_info& request) {
  const std::string_view method = request.request_method;
  if (method != "GET" && method != "HEAD") {
    HttpResponse response = Plain(405, "Method not allowed\n");
    response.headers = {{"Allow", "GET, HEAD"}};
    return response;
  }
  try {
    return handler({.path = request.local_uri,
                    .accept = Header(request, "Accept"),
                    .accept_encoding = Header(request, "Accept-Encoding"),
                    .scrape_timeout = Header(request, "X-Prometheus-Scrape-Timeout-Seconds"),
                    .if_none_match = Header(request, "If-None-Match")});
  } catch (const std::exception& error) {  // civetweb is C: nothing may be thrown through it
    spdlog::error("no answer to {}: {}", request.local_uri, error.what());
    return Plain(500, std::string("Internal error: ") + error.what() + '\n');
  }
}

// What civetweb calls listening_ports: `:9828` is `9828` there.
std::string PortsOption(const std::vector<std::string>& addresses) {
  std::string ports;
  for (const std::string& address : addresses) {
    if (!ports.empty()) ports += ',';
    ports += address.starts_with(':') ? address.substr(1) : address;
  }
  return ports;
}

}  // namespace

struct HttpServer::Library {
  HttpHandler handler;
  RefusalCounter on_refusal;
  mg_context* context = nullptr;

  std::mutex mutex;  // guards what follows
  std::condition_variable is_idle;
  int in_progress = 0;
  std::map<std::string, int> in_progress_by_address;  // those above 0
  bool is_stopping = false;
  // Of civetweb's log: why it could not start. Later messages only say that it could not.
  std::string first_message;

  static Library& Of(const mg_connection* connection) {
    return *static_cast<Library*>(mg_get_user_data(mg_get_context(connection)));
  }

  static int OnRequest(mg_connection* connection) { return Of(connection).Serve(connection); }

  static int OnLog(const mg_connection* connection, const char* message) {
    Library& library = Of(connection);
    const std::lock_guard lock(library.mutex);
    if (library.first_message.empty()) library.first_message = message;
    return 1;
  }

  // What civetweb answers by itself: requests that it cannot read.
  static int OnError(mg_connection* connection, int status, const char*) {
    Of(connection).on_refusal(Refusal::kUnreadableRequest);
    Send(connection, Plain(status, std::string(mg_get_response_code_text(connection, status)) + '\n'), true);
    return 0;
  }

  int Serve(mg_connection* connection) {
    const mg_request_info& request = *mg_get_request_info(connection);
    const int place = Begin(request.remote_addr);
    const HttpResponse response = AnswerAt(place, request);
    if (!Send(connection, response, std::string_view(request.request_method) != "HEAD")) {
      on_refusal(Refusal::kSlowClient);
    }
    if (place != kNoPlace) End(request.remote_addr);
    return response.status;
  }

  HttpResponse AnswerAt(int place, const mg_request_info& request) {
    if (place == kNoPlace) return Plain(503, "Stopping\n");
    if (place > kConnectionsPerAddress) {
      on_refusal(Refusal::kConnectionsPerAddress);
      return Plain(429, "Too many connections from one address\n");
    }
    const bool is_url_too_long = UrlBytes(request) > kUrlLimitBytes;
    if (is_url_too_long || HeaderBytes(request) > kHeadersLimitBytes) {
      on_refusal(Refusal::kRequestTooLarge);
      return is_url_too_long ? Plain(414, "URL too long\n") : Plain(431, "Headers too large\n");
    }
    return Answer(handler, request);
  }

  static constexpr int kNoPlace = 0;

  // How many requests of the address are in progress with this one; kNoPlace where the server stops.
  int Begin(const std::string& address) {
    const std::lock_guard lock(mutex);
    if (is_stopping) return kNoPlace;
    ++in_progress;
    return ++in_progress_by_address[address];
  }

  void End(const std::string& address) {
    const std::lock_guard lock(mutex);
    const auto of_address = in_progress_by_address.find(address);
    if (--of_address->second == 0) in_progress_by_address.erase(of_address);
    if (--in_progress == 0) is_idle.notify_all();
  }

  // Civetweb cuts answers short when it stops, so they are waited for before.
  void Drain() {
    std::unique_lock lock(mutex);
    is_stopping = true;
    is_idle.wait_for(lock, kDrainLimit, [this] { return in_progress == 0; });
  }
};

HttpServer::HttpServer(HttpHandler handler, RefusalCounter on_refusal) : library_(std::make_unique<Library>()) {
  library_->handler = std::move(handler);
  library_->on_refusal = std::move(on_refusal);
  mg_init_library(MG_FEATURES_DEFAULT);
}

HttpServer::~HttpServer() {
  Stop();
  mg_exit_library();
}

std::string HttpServer::Start(const std::vector<std::string>& addresses) {
  const std::string ports = PortsOption(addresses);
  const std::string threads = std::to_string(kConnectionLimit);
  const std::string idle_ms = std::to_string(std::chrono::milliseconds(kIdleLimit).count());
  const std::string request_bytes = std::to_string(kRequestBufferBytes);
  // Without keep-alive: a connection holds one of the few threads for as long as it is open.
  std::array<const char*, 13> options{"listening_ports",
                                      ports.c_str(),
                                      "num_threads",
                                      threads.c_str(),
                                      "request_timeout_ms",
                                      idle_ms.c_str(),
                                      "max_request_size",
                                      request_bytes.c_str(),
                                      "enable_keep_alive",
                                      "no",
                                      "tcp_nodelay",
                                      "1",
                                      nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = &Library::OnRequest;
  callbacks.http_error = &Library::OnError;
  callbacks.log_message = &Library::OnLog;
  mg_init_data init{.callbacks = &callbacks, .user_data = library_.get(), .configuration_options = options.data()};
  unsigned code = 0;
  char text[256] = "";
  mg_error_data error{.code = &code, .text = text, .text_buffer_size = sizeof text};
  library_->context = mg_start2(&init, &error);
  if (library_->context != nullptr) return "";
  const std::lock_guard lock(library_->mutex);
  return library_->first_message.empty() ? std::string(text) : library_->first_message;
}

void HttpServer::Stop() {
  if (library_->context == nullptr) return;
  library_->Drain();
  mg_stop(library_->context);
  library_->context = nullptr;
}

std::vector<int> HttpServer::ports() const {
  std::array<mg_server_port, kMaxPorts> found{};
  const int count = mg_get_server_ports(library_->context, static_cast<int>(found.size()), found.data());
  std::vector<int> ports;
  for (int i = 0; i < count; ++i) ports.push_back(found[static_cast<size_t>(i)].port);
  return ports;
}

}  // namespace nccl_exporter
