// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/plain_get.h"

#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::optional<size_t> NumberOf(std::string_view text, int base) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The value of a field of a head without the empty line at its end, in lower case and without
// blanks before it. Empty where the head has no such field.
std::string FieldOf(std::string_view head, const std::string& name) {
  std::string lower = std::string(head) + "\r\n";
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t at = lower.find("\r\n" + name + ':');
  if (at == std::string::npos) return "";
  const size_t begin = lower.find_first_not_of(" \t", at + name.size() + 3);
  return lower.substr(begin, lower.find("\r\n", begin) - begin);
}

int StatusOf(std::string_view line) {
  constexpr std::string_view kVersion = "HTTP/1.";
  constexpr size_t kStatusAt = sizeof("HTTP/1.1 ") - 1, kDigits = 3;
  if (!line.starts_with(kVersion) || line.size() < kStatusAt + kDigits) return 0;
  return static_cast<int>(NumberOf(line.substr(kStatusAt, kDigits), 10).value_or(0));
}

// The body that chunks of HTTP/1.1 carry; nothing if one of them is not whole or not right.
std::optional<std::string> JoinChunks(std::string_view text) {
  std::string body;
  for (;;) {
    const size_t line_end = text.find("\r\n");
    if (line_end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, line_end);
    // Extensions follow a semicolon, and nobody uses them.
    const std::optional<size_t> size = NumberOf(line.substr(0, line.find(';')), 16);
    text.remove_prefix(line_end + 2);
    if (!size || *size > text.size()) return std::nullopt;
    if (*size == 0) return body;  // fields may follow, and say nothing of the body
    body.append(text.substr(0, *size));
    text.remove_prefix(*size);
    if (!text.starts_with("\r\n")) return std::nullopt;
    text.remove_prefix(2);
  }
}

PlainAnswer Unreachable(std::string fault) {
  return {.status_line = "", .body = "", .fault = std::move(fault)};
}

// From the server at a Unix socket.
PlainAnswer GetLocally(const PlainRequest& request) {
  const std::string& path = request.server.socket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Unreachable("the path is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  addrinfo peer{};
  peer.ai_family = AF_UNIX;
  peer.ai_addr = reinterpret_cast<sockaddr*>(&address);
  peer.ai_addrlen = sizeof address;
  return PlainGet(request, &peer);
}

std::string Exchange(const PlainRequest& request, Connection& connection, PlainAnswer& answer) {
  std::string text, fault = connection.Send("GET " + request.server.prefix + request.path +
                                            " HTTP/1.1\r\nHost: " + request.host_field + "\r\n" +
                                            request.fields + "Connection: close\r\n\r\n");
  bool is_over = false;
  while (fault.empty() && !TakeApart(text, is_over, answer)) {
    if (text.size() >= request.most_bytes)
      return "an answer of more than " + std::to_string(request.most_bytes) + " bytes";
    if (is_over) return text.empty() ? "no answer" : "an answer without its end";
    fault = connection.Receive(text, is_over);
  }
  return fault;
}

}  // namespace

bool TakeApart(std::string_view text, bool is_over, PlainAnswer& answer) {
  const size_t line_end = text.find_first_of("\r\n");
  if (line_end == std::string::npos) return false;
  answer.status_line = text.substr(0, line_end);
  answer.status = StatusOf(answer.status_line);
  const size_t head_end = text.find("\r\n\r\n");
  if (head_end == std::string::npos) return false;
  const std::string_view head = text.substr(0, head_end), rest = text.substr(head_end + 4);
  if (FieldOf(head, "transfer-encoding") == "chunked") {
    if (!is_over && !rest.ends_with(kLastChunk)) return false;
    std::optional<std::string> body = JoinChunks(rest);
    if (body) answer.body = *std::move(body);
    return body.has_value();
  }
  const std::optional<size_t> length = NumberOf(FieldOf(head, "content-length"), 10);
  if (!length || rest.size() < *length) return false;
  answer.body = rest.substr(0, *length);
  return true;
}

PlainAnswer PlainGet(const PlainRequest& request, const addrinfo* peers) {
  PlainAnswer answer;
  const Connection::Clock::time_point deadline = Connection::Clock::now() + request.patience;
  int left = 0;
  for (const addrinfo* peer = peers; peer != nullptr; peer = peer->ai_next) ++left;
  // localhost is ::1 first, where a server of IPv4 does not listen.
  for (const addrinfo* peer = peers; peer != nullptr && !answer.is_connected;
       peer = peer->ai_next, --left) {
    Connection connection(deadline);
    const Connection::Clock::time_point now = Connection::Clock::now();
    answer.fault = connection.Open(*peer, now + (deadline - now) / left);
    answer.is_connected = answer.fault.empty();
    if (answer.is_connected && request.server.is_tls)
      answer.fault = connection.StartTls(request.tls, request.server.host);
    if (answer.fault.empty()) answer.fault = Exchange(request, connection, answer);
  }
  return answer;
}

PlainAnswer PlainGet(const PlainRequest& request) {
  if (!request.server.socket.empty()) return GetLocally(request);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(request.server.host.c_str(), request.server.port.c_str(), &hints, &found);
  if (status != 0) return Unreachable(::gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  return PlainGet(request, found);
}

}  // namespace nccl_exporter::exporter
