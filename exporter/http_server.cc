// SPDX-License-Identifier: Apache-2.0
// One thread accepts, and one a connection reads its request, asks the handler and sends the answer.
#include "exporter/http_server.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <deque>
#include <exception>
#include <ranges>
#include <stdexcept>
#include <thread>

#include "exporter/listening_sockets.h"
#include "exporter/open_connections.h"
#include "exporter/request_head.h"
#include "exporter/tls_context.h"

namespace nccl_exporter {
namespace {

using Clock = Connection::Clock;

// The answer's time is looked at between parts of this size.
constexpr size_t kPartBytes = 16384;
// How long a stop waits for answers in progress: well within the 30 s that Kubernetes gives.
constexpr std::chrono::seconds kDrainLimit{5};
// Turned away, a client gets this long to see why before its connection is closed; so many at a time.
constexpr std::chrono::seconds kTurnedAwayLimit{1};
constexpr size_t kMaxTurnedAway = 64;

std::string_view StatusText(int status) {
  constexpr std::array<std::pair<int, std::string_view>, 12> kTexts{{{200, "OK"},
                                                                     {400, "Bad Request"},
                                                                     {401, "Unauthorized"},
                                                                     {404, "Not Found"},
                                                                     {405, "Method Not Allowed"},
                                                                     {408, "Request Timeout"},
                                                                     {414, "URI Too Long"},
                                                                     {429, "Too Many Requests"},
                                                                     {431, "Request Header Fields Too Large"},
                                                                     {500, "Internal Server Error"},
                                                                     {503, "Service Unavailable"},
                                                                     {505, "HTTP Version Not Supported"}}};
  const auto found = std::ranges::find(kTexts, status, &std::pair<int, std::string_view>::first);
  return found == kTexts.end() ? "Status" : found->second;
}

std::string DateText() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc));
}

// Status line and headers. Connections are not kept: each holds one of the few threads for as long as it is open.
std::string HeadText(const HttpResponse& response) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  head.append(StatusText(response.status)).append("\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  constexpr const char* kNoSniff = "X-Content-Type-Options";
  add("Date", DateText());
  add("Connection", "close");
  add("Content-Type", response.content_type);
  add("Content-Length", std::to_string(response.bytes().size()));
  const auto names = response.headers | std::views::keys;
  if (std::ranges::find(names, kNoSniff) == names.end()) add(kNoSniff, "nosniff");
  for (const auto& [name, value] : response.headers) add(name, value);
  return head += "\r\n";
}

// False where the client does not take the answer, or not in time.
bool Send(Connection& connection, const HttpResponse& response, bool with_body) {
  const auto deadline = Clock::now() + kAnswerLimit;
  const auto send = [&](std::string_view text) {
    while (!text.empty()) {
      const std::string_view part = text.substr(0, kPartBytes);
      if (!connection.Write(part, std::min(deadline, Clock::now() + kIdleLimit))) return false;
      text.remove_prefix(part.size());
    }
    return true;
  };
  return send(HeadText(response)) && (!with_body || send(response.bytes()));
}

HttpResponse Plain(int status, std::string body) { return {.status = status, .headers = {}, .body = std::move(body)}; }

HttpResponse Unreadable(int status) { return Plain(status, std::string(StatusText(status)) + '\n'); }

HttpResponse Answer(const HttpHandler& handler, const RequestHead& head) {
  if (head.method != "GET" && head.method != "HEAD") {
    HttpResponse response = Plain(405, "Method not allowed\n");
    response.headers = {{"Allow", "GET, HEAD"}};
    return response;
  }
  try {
    return handler({.path = head.path,
                    .accept = head.Header("Accept"),
                    .accept_encoding = head.Header("Accept-Encoding"),
                    .scrape_timeout = head.Header("X-Prometheus-Scrape-Timeout-Seconds"),
                    .authorization = head.Header("Authorization")});
  } catch (const std::exception& error) {
    spdlog::error("no answer to {}: {}", head.path, error.what());
    return Plain(500, std::string("Internal error: ") + error.what() + '\n');
  }
}

// What came of reading: a head, or the status to answer; 0 for no answer at all.
struct ReadRequest {
  RequestHead head;
  bool is_read = false;
  int status = 0;
};

ReadRequest Read(Connection& connection, Clock::time_point deadline) {
  ReadRequest request;
  std::string bytes(kRequestBufferBytes, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const size_t got = connection.Read(bytes.data() + size, bytes.size() - size, deadline);
    if (got == 0) {
      const bool is_late = Clock::now() >= deadline;
      request.status = is_late ? 408 : size > 0 ? 400 : 0;
      return request;
    }
    size += got;
    const size_t head_bytes = HeadBytes(std::string_view(bytes.data(), size));
    if (head_bytes == std::string_view::npos) continue;
    request.status = ParseRequestHead(std::string_view(bytes.data(), head_bytes), request.head);
    request.is_read = request.status == 0;
    return request;
  }
  request.status = 400;
  return request;
}

// Sockets of those that are turned away, with what they have been told.
class TurnedAway {
 public:
  ~TurnedAway() { Close(Clock::time_point::max()); }

  void Add(int socket) {
    const std::string text = HeadText(Plain(429, "Too many connections from one address\n"));
    const std::string answer = text + "Too many connections from one address\n";
    send(socket, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(socket, SHUT_WR);
    if (sockets_.size() == kMaxTurnedAway) CloseFirst();
    sockets_.emplace_back(socket, Clock::now() + kTurnedAwayLimit);
  }
  // Closes those whose time is over.
  void Close(Clock::time_point now) {
    while (!sockets_.empty() && sockets_.front().second <= now) CloseFirst();
  }
  bool is_empty() const { return sockets_.empty(); }

 private:
  void CloseFirst() {
    close(sockets_.front().first);
    sockets_.pop_front();
  }

  std::deque<std::pair<int, Clock::time_point>> sockets_;
};

}  // namespace

class HttpServer::Service {
 public:
  Service(HttpHandler handler, RefusalCounter on_refusal)
      : handler_(std::move(handler)), on_refusal_(std::move(on_refusal)) {
    if (stop_event_ < 0) throw std::runtime_error("no eventfd");
  }
  ~Service() {
    Stop();
    close(stop_event_);
  }

  ListeningSockets listening;

  void Start(const TlsContext* tls) {
    tls_ = tls;
    sigset_t pipe;
    sigset_t before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);  // of the threads that begin here: see Connection
    threads_.emplace_back([this] { Accept(); });
    for (int i = 0; i < kConnectionLimit; ++i) threads_.emplace_back([this] { Serve(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void Stop() {
    if (threads_.empty()) return;
    const uint64_t one = 1;
    if (write(stop_event_, &one, sizeof one) != sizeof one) std::terminate();
    open_.Stop(kDrainLimit);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    listening.Close();
  }

 private:
  void Accept() {
    std::vector<pollfd> waiting{{.fd = stop_event_, .events = POLLIN, .revents = 0}};
    for (const int socket : listening.sockets()) waiting.push_back({.fd = socket, .events = POLLIN, .revents = 0});
    TurnedAway turned_away;
    for (;;) {
      constexpr int kTickMs = 100;
      poll(waiting.data(), waiting.size(), turned_away.is_empty() ? -1 : kTickMs);
      if (waiting[0].revents != 0) return;
      turned_away.Close(Clock::now());
      for (const pollfd& listener : waiting) {
        if (listener.revents != 0 && !AcceptOne(listener.fd, turned_away)) return;
      }
    }
  }

  // False where the server stops.
  bool AcceptOne(int listener, TurnedAway& turned_away) {
    const int socket = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      // Without descriptors or memory: the connection stays where it is, and poll() would return at once.
      const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (is_short) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return true;
    }
    const std::string address = PeerAddress(socket);
    if (!open_.MayCome(address)) {
      on_refusal_(Refusal::kConnectionsPerAddress);
      if (tls_ == nullptr) {
        turned_away.Add(socket);
      } else {
        close(socket);
      }
      return true;
    }
    int gave_way = 0;
    const bool goes_on = open_.Add(socket, address, gave_way);
    if (!goes_on) close(socket);
    for (; gave_way > 0; --gave_way) on_refusal_(Refusal::kConnectionLimit);
    return goes_on;
  }

  void Serve() {
    while (OpenConnection* const next = open_.Next()) {
      Serve(*next);
      open_.Remove(next);
    }
  }

  void Serve(OpenConnection& open) {
    const auto deadline = open.accepted + kIdleLimit;
    if (tls_ != nullptr && !open.connection.Handshake(tls_->front(), deadline)) {
      if (!open_.HasGivenWay(open)) on_refusal_(Refusal::kUnreadableRequest);
      return;
    }
    const ReadRequest request = Read(open.connection, deadline);
    if (!open_.BeginAnswer(open) || (!request.is_read && request.status == 0)) return;
    const HttpResponse response = request.is_read ? AnswerWithinLimits(request.head) : Unreadable(request.status);
    if (!request.is_read) on_refusal_(Refusal::kUnreadableRequest);
    if (!Send(open.connection, response, request.head.method != "HEAD")) return on_refusal_(Refusal::kSlowClient);
    open.connection.End();
  }

  HttpResponse AnswerWithinLimits(const RequestHead& head) {
    const bool is_url_too_long = head.target_bytes > kUrlLimitBytes;
    if (is_url_too_long || head.header_bytes > kHeadersLimitBytes) {
      on_refusal_(Refusal::kRequestTooLarge);
      return is_url_too_long ? Plain(414, "URL too long\n") : Plain(431, "Headers too large\n");
    }
    return Answer(handler_, head);
  }

  const HttpHandler handler_;
  const RefusalCounter on_refusal_;
  const TlsContext* tls_ = nullptr;
  const int stop_event_ = eventfd(0, EFD_CLOEXEC);
  OpenConnections open_{{.all = kConnectionLimit, .of_one_address = kConnectionsPerAddress, .patience = kPatience}};
  std::vector<std::thread> threads_;
};

HttpServer::HttpServer(HttpHandler handler, RefusalCounter on_refusal)
    : service_(std::make_unique<Service>(std::move(handler), std::move(on_refusal))) {}

HttpServer::~HttpServer() = default;

std::string HttpServer::Start(const std::vector<std::string>& addresses, const TlsContext* tls) {
  const std::string error = service_->listening.Bind(addresses);
  if (error.empty()) service_->Start(tls);
  return error;
}

std::string HttpServer::StartAtPassedSockets(const TlsContext* tls) {
  const std::string error = service_->listening.TakeFromSystemd();
  if (error.empty()) service_->Start(tls);
  return error;
}

void HttpServer::Stop() { service_->Stop(); }

std::vector<int> HttpServer::ports() const { return service_->listening.ports(); }

std::vector<std::string> HttpServer::names() const { return service_->listening.names(); }

}  // namespace nccl_exporter
