// SPDX-License-Identifier: Apache-2.0
#include "exporter/client/plain_get.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

namespace nccl_exporter::exporter {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNoAnswerInTime = "no answer in time";

class Connection {
 public:
  explicit Connection(Clock::time_point deadline) : deadline_(deadline) {}
  ~Connection() {
    if (socket_ >= 0) ::close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // What went wrong; empty if nothing did. The same below.
  std::string Open(const addrinfo& peer) {
    socket_ = ::socket(peer.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ < 0) return std::strerror(errno);
    if (::connect(socket_, peer.ai_addr, peer.ai_addrlen) == 0) return "";
    if (errno != EINPROGRESS) return std::strerror(errno);
    if (std::string fault = Await(POLLOUT); !fault.empty()) return fault;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? "" : std::strerror(error);
  }

  std::string Send(std::string_view text) {
    while (!text.empty()) {
      if (std::string fault = Await(POLLOUT); !fault.empty()) return fault;
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return std::strerror(errno);
      text.remove_prefix(sent < 0 ? 0 : static_cast<size_t>(sent));
    }
    return "";
  }

  // Adds what has come to `text`. Sets `is_over` where the peer has closed.
  std::string Receive(std::string& text, bool& is_over) {
    if (std::string fault = Await(POLLIN); !fault.empty()) return fault;
    std::array<char, 16384> bytes;
    const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR ? "" : std::strerror(errno);
    is_over = size == 0;
    text.append(bytes.data(), static_cast<size_t>(size));
    return "";
  }

 private:
  std::string Await(short events) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0) return kNoAnswerInTime;
    pollfd wanted{.fd = socket_, .events = events, .revents = 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready < 0) return errno == EINTR ? Await(events) : std::strerror(errno);
    return ready == 0 ? kNoAnswerInTime : "";
  }

  const Clock::time_point deadline_;
  int socket_ = -1;
};

bool IsSameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

std::optional<size_t> NumberOf(std::string_view text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Of a head without the empty line at its end.
std::optional<size_t> ContentLength(std::string_view head) {
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !IsSameName(line.substr(0, colon), "content-length"))
      continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string_view::npos ? std::nullopt : NumberOf(line.substr(value));
  }
  return std::nullopt;
}

int StatusOf(std::string_view line) {
  constexpr std::string_view kVersion = "HTTP/1.";
  constexpr size_t kStatusAt = sizeof("HTTP/1.1 ") - 1, kDigits = 3;
  if (!line.starts_with(kVersion) || line.size() < kStatusAt + kDigits) return 0;
  return static_cast<int>(NumberOf(line.substr(kStatusAt, kDigits)).value_or(0));
}

// Takes apart what came; false while more has to come.
bool TakeApart(const std::string& text, PlainAnswer& answer) {
  const size_t line_end = text.find_first_of("\r\n");
  if (line_end == std::string::npos) return false;
  answer.status_line = text.substr(0, line_end);
  answer.status = StatusOf(answer.status_line);
  const size_t head_end = text.find("\r\n\r\n");
  if (head_end == std::string::npos) return false;
  const std::optional<size_t> length = ContentLength(std::string_view(text).substr(0, head_end));
  const size_t body_at = head_end + 4;
  if (!length || text.size() - body_at < *length) return false;
  answer.body = text.substr(body_at, *length);
  return true;
}

std::string Exchange(const PlainRequest& request, Connection& connection, PlainAnswer& answer) {
  std::string text, fault = connection.Send("GET " + request.path +
                                            " HTTP/1.1\r\nHost: localhost\r\n"
                                            "Connection: close\r\n\r\n");
  bool is_over = false;
  while (fault.empty() && !TakeApart(text, answer)) {
    if (text.size() >= request.most_bytes)
      return "an answer of more than " + std::to_string(request.most_bytes) + " bytes";
    if (is_over) return text.empty() ? "no answer" : "an answer without its end";
    fault = connection.Receive(text, is_over);
  }
  return fault;
}

}  // namespace

PlainAnswer PlainGet(const PlainRequest& request) {
  PlainAnswer answer;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(request.host.c_str(), request.port.c_str(), &hints, &found);
  if (status != 0) {
    answer.fault = ::gai_strerror(status);
    return answer;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Connection connection(Clock::now() + request.patience);
  answer.fault = connection.Open(*found);
  answer.is_connected = answer.fault.empty();
  if (answer.is_connected) answer.fault = Exchange(request, connection, answer);
  return answer;
}

}  // namespace nccl_exporter::exporter
