// SPDX-License-Identifier: Apache-2.0
// HTTP by civetweb: every request goes to the handler, none to civetweb's own file server.
#include "exporter/http_server.h"

#include <civetweb.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <mutex>

namespace nccl_exporter {
namespace {

// More than scrapes may run at a time, so that health checks are answered while all scrapes are slow.
constexpr const char* kThreads = "10";
// A client that takes longer than the longest usual scrape timeout to send a request or take an answer is cut off.
constexpr const char* kRequestTimeoutMs = "10000";
constexpr const char* kRequestLimitBytes = "16384";
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
  add("Content-Length", std::to_string(response.body.size()));
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) add(name, value);
  return head += "\r\n";
}

void Send(mg_connection* connection, const HttpResponse& response, bool with_body) {
  const std::string head = HeadText(connection, response);
  mg_write(connection, head.data(), head.size());
  if (with_body) mg_write(connection, response.body.data(), response.body.size());
}

HttpResponse Answer(const HttpHandler& handler, const mg_request_info& request) {
  const std::string_view method = request.request_method;
  if (method != "GET" && method != "HEAD") {
    return {.status = 405, .headers = {{"Allow", "GET, HEAD"}}, .body = "Method not allowed\n"};
  }
  try {
    return handler({.path = request.local_uri,
                    .accept = Header(request, "Accept"),
                    .accept_encoding = Header(request, "Accept-Encoding")});
  } catch (const std::exception& error) {  // civetweb is C: nothing may be thrown through it
    spdlog::error("no answer to {}: {}", request.local_uri, error.what());
    return {.status = 500, .headers = {}, .body = std::string("Internal error: ") + error.what() + '\n'};
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
  mg_context* context = nullptr;

  std::mutex mutex;  // guards what follows
  std::condition_variable is_idle;
  int in_progress = 0;
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

  int Serve(mg_connection* connection) {
    const mg_request_info& request = *mg_get_request_info(connection);
    const bool is_welcome = Begin();
    const HttpResponse response =
        is_welcome ? Answer(handler, request) : HttpResponse{.status = 503, .headers = {}, .body = "Stopping\n"};
    Send(connection, response, std::string_view(request.request_method) != "HEAD");
    if (is_welcome) End();
    return response.status;
  }

  bool Begin() {
    const std::lock_guard lock(mutex);
    if (!is_stopping) ++in_progress;
    return !is_stopping;
  }

  void End() {
    const std::lock_guard lock(mutex);
    if (--in_progress == 0) is_idle.notify_all();
  }

  // Civetweb cuts answers short when it stops, so they are waited for before.
  void Drain() {
    std::unique_lock lock(mutex);
    is_stopping = true;
    is_idle.wait_for(lock, kDrainLimit, [this] { return in_progress == 0; });
  }
};

HttpServer::HttpServer(HttpHandler handler) : library_(std::make_unique<Library>()) {
  library_->handler = std::move(handler);
  mg_init_library(MG_FEATURES_DEFAULT);
}

HttpServer::~HttpServer() {
  Stop();
  mg_exit_library();
}

std::string HttpServer::Start(const std::vector<std::string>& addresses) {
  const std::string ports = PortsOption(addresses);
  // Without keep-alive: a connection holds one of the few threads for as long as it is open.
  std::array<const char*, 13> options{"listening_ports",
                                      ports.c_str(),
                                      "num_threads",
                                      kThreads,
                                      "request_timeout_ms",
                                      kRequestTimeoutMs,
                                      "max_request_size",
                                      kRequestLimitBytes,
                                      "enable_keep_alive",
                                      "no",
                                      "tcp_nodelay",
                                      "1",
                                      nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = &Library::OnRequest;
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
