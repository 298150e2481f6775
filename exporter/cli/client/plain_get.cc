// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/plain_get.h"

#include <gnutls/gnutls.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNoAnswerInTime = "no answer in time";
constexpr size_t kReceivedBytes = 16384;  // a record of TLS

// Where other distributions than that of this GnuTLS have the authorities that they trust.
constexpr std::array kSystemTrust{"/etc/ssl/certs/ca-certificates.crt",
                                  "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"};
constexpr std::string_view kLastChunk = "0\r\n\r\n";

int StatusOf(std::string_view line) {
  constexpr std::string_view kVersion = "HTTP/1.";
  constexpr size_t kStatusAt = sizeof("HTTP/1.1 ") - 1, kDigits = 3;
  if (!line.starts_with(kVersion) || line.size() < kStatusAt + kDigits) return 0;
  return static_cast<int>(NumberIn<size_t>(line.substr(kStatusAt, kDigits), 10).value_or(0));
}

// The body that chunks of HTTP/1.1 carry; nothing if one of them is not whole or not right.
std::optional<std::string> JoinChunks(std::string_view text) {
  std::string body;
  for (;;) {
    const size_t line_end = text.find("\r\n");
    if (line_end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, line_end);
    // Extensions follow a semicolon, and nobody uses them.
    const std::optional<size_t> size = NumberIn<size_t>(line.substr(0, line.find(';')), 16);
    text.remove_prefix(line_end + 2);
    if (!size || *size > text.size()) return std::nullopt;
    if (*size == 0) return body;  // fields may follow, and say nothing of the body
    body.append(text.substr(0, *size));
    text.remove_prefix(*size);
    if (!text.starts_with("\r\n")) return std::nullopt;
    text.remove_prefix(2);
  }
}

// One connection with a deadline, with TLS where it is asked for. Functions return what went wrong;
// an empty text if nothing did.
class Connection {
 public:
  explicit Connection(Clock::time_point deadline) : deadline_(deadline) {}
  ~Connection() {
    if (session_ != nullptr) gnutls_deinit(session_);
    if (credentials_ != nullptr) gnutls_certificate_free_credentials(credentials_);
    if (socket_ >= 0) ::close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The connection is open by `until`, which is no later than the deadline.
  std::string Open(const addrinfo& peer, Clock::time_point until) {
    socket_ = ::socket(peer.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return std::strerror(errno);
    if (std::string fault = WaitAtMost(until); !fault.empty()) return fault;
    if (::connect(socket_, peer.ai_addr, peer.ai_addrlen) == 0) return "";
    return errno == EINPROGRESS || errno == EAGAIN ? kNoAnswerInTime : std::strerror(errno);
  }

  // After Open(): what follows is encrypted, and the peer is `host`.
  std::string StartTls(const TlsSettings& settings, const std::string& host) {
    if (std::string fault = LoadTls(settings); !fault.empty()) return fault;
    gnutls_init(&session_, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL);
    gnutls_set_default_priority(session_);
    gnutls_credentials_set(session_, GNUTLS_CRD_CERTIFICATE, credentials_);
    gnutls_transport_set_int(session_, socket_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    gnutls_handshake_set_timeout(session_,
                                 static_cast<unsigned>(std::max<int64_t>(left.count(), 1)));
    const std::string& name = settings.server_name.empty() ? host : settings.server_name;
    if (!IsAddress(name))
      gnutls_server_name_set(session_, GNUTLS_NAME_DNS, name.data(), name.size());
    if (!settings.skips_verification) gnutls_session_set_verify_cert(session_, name.c_str(), 0);
    for (;;) {
      if (std::string fault = WaitAtMost(deadline_); !fault.empty()) return fault;
      const int result = gnutls_handshake(session_);
      if (result == GNUTLS_E_SUCCESS) return "";
      if (std::string fault = FaultOf(result); !fault.empty()) return fault;
    }
  }

  std::string Send(std::string_view text) {
    while (!text.empty()) {
      if (std::string fault = WaitAtMost(deadline_); !fault.empty()) return fault;
      const ssize_t sent = session_ != nullptr
                               ? gnutls_record_send(session_, text.data(), text.size())
                               : ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        text.remove_prefix(static_cast<size_t>(sent));
      } else if (std::string fault = FaultOf(sent); !fault.empty()) {
        return fault;
      }
    }
    return "";
  }

  // Adds what has come to `text`. Sets `is_over` where the peer has closed.
  std::string Receive(std::string& text, bool& is_over) {
    if (std::string fault = WaitAtMost(deadline_); !fault.empty()) return fault;
    std::array<char, kReceivedBytes> bytes;
    const ssize_t size = session_ != nullptr
                             ? gnutls_record_recv(session_, bytes.data(), bytes.size())
                             : ::recv(socket_, bytes.data(), bytes.size(), 0);
    // Many servers close without a goodbye of TLS. A body that is cut is seen by its length.
    is_over = size == 0 || (session_ != nullptr && size == GNUTLS_E_PREMATURE_TERMINATION);
    if (is_over) return "";
    if (size < 0) return FaultOf(size);
    text.append(bytes.data(), static_cast<size_t>(size));
    return "";
  }

 private:
  // The next call of the socket waits no longer than until then.
  std::string WaitAtMost(Clock::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::microseconds>(until - Clock::now()).count();
    if (left <= 0) return kNoAnswerInTime;
    constexpr int64_t kSecond = 1000000;
    const timeval time{.tv_sec = left / kSecond, .tv_usec = left % kSecond};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    return "";
  }

  std::string LoadTls(const TlsSettings& settings) {
    gnutls_certificate_allocate_credentials(&credentials_);
    const auto trust = [&](const char* file) {
      return gnutls_certificate_set_x509_trust_file(credentials_, file, GNUTLS_X509_FMT_PEM) > 0;
    };
    if (!settings.ca_file.empty()) {
      if (!trust(settings.ca_file.c_str()))
        return settings.ca_file + " has no certificate of an authority";
    } else if (!settings.skips_verification) {
      bool is_loaded = gnutls_certificate_set_x509_system_trust(credentials_) > 0;
      for (const char* const file : kSystemTrust) is_loaded = is_loaded || trust(file);
      if (!is_loaded) return "TLS: this system trusts no authority; name one as ca_file";
    }
    if (settings.certificate_file.empty()) return "";
    const int loaded =
        gnutls_certificate_set_x509_key_file(credentials_, settings.certificate_file.c_str(),
                                             settings.key_file.c_str(), GNUTLS_X509_FMT_PEM);
    if (loaded == 0) return "";
    return settings.certificate_file + " and " + settings.key_file + ": " + gnutls_strerror(loaded);
  }

  // The fault of a call that returned `result`, below 0; empty if the call may be made again.
  std::string FaultOf(ssize_t result) const {
    if (session_ == nullptr) return errno == EAGAIN || errno == EINTR ? "" : std::strerror(errno);
    // A warning, an interrupted call, or new keys: the next call goes on.
    const int code = static_cast<int>(result);
    if (gnutls_error_is_fatal(code) == 0) return "";
    if (code != GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
      return std::string("TLS: ") + gnutls_strerror(code);
    gnutls_datum_t reason{};
    gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(session_),
                                                 GNUTLS_CRT_X509, &reason, 0);
    const std::string text(reinterpret_cast<const char*>(reason.data), reason.size);
    gnutls_free(reason.data);
    return "TLS: " + text.substr(0, text.find_last_not_of(" \n") + 1);
  }

  const Clock::time_point deadline_;
  int socket_ = -1;
  gnutls_certificate_credentials_t credentials_ = nullptr;
  gnutls_session_t session_ = nullptr;  // null: no TLS
};

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

std::string Send(const PlainRequest& request, Connection& connection) {
  const std::string length =
      request.posted ? "Content-Length: " + std::to_string(request.posted->size()) + "\r\n" : "";
  const std::string fault =
      connection.Send((request.posted ? "POST " : "GET ") + request.server.prefix + request.path +
                      " HTTP/1.1\r\nHost: " + request.host_field + "\r\n" + request.fields +
                      length + "Connection: close\r\n\r\n");
  return fault.empty() && request.posted ? connection.Send(*request.posted) : fault;
}

std::string Receive(const PlainRequest& request, Connection& connection, PlainAnswer& answer) {
  std::string text, fault;
  bool is_over = false;
  while (fault.empty() && !TakeApart(text, is_over, answer)) {
    if (text.size() >= request.most_bytes)
      return "an answer of more than " + std::to_string(request.most_bytes) + " bytes";
    if (is_over) return text.empty() ? "no answer" : "an answer without its end";
    fault = connection.Receive(text, is_over);
  }
  return fault;
}

std::string Exchange(const PlainRequest& request, Connection& connection, PlainAnswer& answer) {
  const std::string unsent = Send(request, connection);
  if (!unsent.empty() && !request.posted) return unsent;
  // One that refuses a body may answer and close before it has taken all of it.
  const std::string fault = Receive(request, connection, answer);
  return unsent.empty() || answer.status != 0 ? fault : unsent;
}

}  // namespace

std::string FieldOf(std::string_view head, const std::string& name) {
  std::string lower = std::string(head) + "\r\n";
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t at = lower.find("\r\n" + name + ':');
  if (at == std::string::npos) return "";
  const size_t begin = lower.find_first_not_of(" \t", at + name.size() + 3);
  return lower.substr(begin, lower.find("\r\n", begin) - begin);
}

bool TakeApart(std::string_view text, bool is_over, PlainAnswer& answer) {
  const size_t line_end = text.find_first_of("\r\n");
  if (line_end == std::string::npos) return false;
  answer.status_line = text.substr(0, line_end);
  answer.status = StatusOf(answer.status_line);
  const size_t head_end = text.find("\r\n\r\n");
  if (head_end == std::string::npos) return false;
  const std::string_view head = text.substr(0, head_end), rest = text.substr(head_end + 4);
  answer.head = head;
  if (FieldOf(head, "transfer-encoding") == "chunked") {
    if (!is_over && !rest.ends_with(kLastChunk)) return false;
    std::optional<std::string> body = JoinChunks(rest);
    if (body) answer.body = *std::move(body);
    return body.has_value();
  }
  const std::optional<size_t> length = NumberIn<size_t>(FieldOf(head, "content-length"), 10);
  if (!length || rest.size() < *length) return false;
  answer.body = rest.substr(0, *length);
  return true;
}

PlainAnswer PlainGet(const PlainRequest& request, const addrinfo* peers) {
  PlainAnswer answer;
  const Clock::time_point deadline = Clock::now() + request.patience;
  int left = 0;
  for (const addrinfo* peer = peers; peer != nullptr; peer = peer->ai_next) ++left;
  // localhost is ::1 first, where a server of IPv4 does not listen.
  for (const addrinfo* peer = peers; peer != nullptr && !answer.is_connected;
       peer = peer->ai_next, --left) {
    Connection connection(deadline);
    const Clock::time_point now = Clock::now();
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

PlainAnswer PlainPost(PlainRequest request, std::string_view body) {
  request.posted = body;
  return PlainGet(request);
}

}  // namespace nccl_exporter::exporter
