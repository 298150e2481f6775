// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kNoAnswerInTime = "no answer in time";
constexpr size_t kReceivedBytes = 16384;  // a record of TLS

// Where other distributions than that of this GnuTLS have the authorities that they trust.
constexpr std::array kSystemTrust{"/etc/ssl/certs/ca-certificates.crt",
                                  "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"};

bool IsAddress(const std::string& host) {
  in6_addr parsed{};
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

std::string TlsFault(int code) { return std::string("TLS: ") + gnutls_strerror(code); }

}  // namespace

Connection::~Connection() {
  if (session_ != nullptr) gnutls_deinit(session_);
  if (credentials_ != nullptr) gnutls_certificate_free_credentials(credentials_);
  if (socket_ >= 0) ::close(socket_);
}

std::string Connection::Open(const addrinfo& peer, Clock::time_point until) {
  socket_ = ::socket(peer.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return std::strerror(errno);
  if (::connect(socket_, peer.ai_addr, peer.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  if (std::string fault = Await(POLLOUT, until); !fault.empty()) return fault;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : std::strerror(error);
}

std::string Connection::Send(std::string_view text) {
  if (session_ != nullptr) return SendTls(text);
  while (!text.empty()) {
    if (std::string fault = Await(POLLOUT); !fault.empty()) return fault;
    const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return std::strerror(errno);
    text.remove_prefix(sent < 0 ? 0 : static_cast<size_t>(sent));
  }
  return "";
}

std::string Connection::Receive(std::string& text, bool& is_over) {
  if (session_ != nullptr) return ReceiveTls(text, is_over);
  if (std::string fault = Await(POLLIN); !fault.empty()) return fault;
  std::array<char, kReceivedBytes> bytes;
  const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR ? "" : std::strerror(errno);
  is_over = size == 0;
  text.append(bytes.data(), static_cast<size_t>(size));
  return "";
}

std::string Connection::Await(short events, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  if (left.count() <= 0) return kNoAnswerInTime;
  pollfd wanted{.fd = socket_, .events = events, .revents = 0};
  const int ready = ::poll(&wanted, 1, static_cast<int>(left.count()));
  if (ready < 0) return errno == EINTR ? Await(events, until) : std::strerror(errno);
  return ready == 0 ? kNoAnswerInTime : "";
}

std::string Connection::AwaitTls(int result) {
  if (result == GNUTLS_E_AGAIN)
    return Await(gnutls_record_get_direction(session_) == 0 ? POLLIN : POLLOUT);
  // A warning, an interrupted call, or new keys: the next call goes on.
  return gnutls_error_is_fatal(result) == 0 ? "" : TlsFault(result);
}

std::string Connection::LoadTls(const TlsSettings& settings) {
  gnutls_certificate_allocate_credentials(&credentials_);
  if (!settings.ca_file.empty()) {
    const int loaded = gnutls_certificate_set_x509_trust_file(
        credentials_, settings.ca_file.c_str(), GNUTLS_X509_FMT_PEM);
    if (loaded <= 0) return settings.ca_file + " has no certificate of an authority";
  } else if (!settings.skips_verification) {
    int loaded = gnutls_certificate_set_x509_system_trust(credentials_);
    for (const char* const file : kSystemTrust) {
      if (loaded <= 0)
        loaded = gnutls_certificate_set_x509_trust_file(credentials_, file, GNUTLS_X509_FMT_PEM);
    }
    if (loaded <= 0) return "TLS: this system trusts no authority; name one as ca_file";
  }
  if (settings.certificate_file.empty()) return "";
  const int loaded =
      gnutls_certificate_set_x509_key_file(credentials_, settings.certificate_file.c_str(),
                                           settings.key_file.c_str(), GNUTLS_X509_FMT_PEM);
  if (loaded == 0) return "";
  return settings.certificate_file + " and " + settings.key_file + ": " + gnutls_strerror(loaded);
}

std::string Connection::StartTls(const TlsSettings& settings, const std::string& host) {
  if (std::string fault = LoadTls(settings); !fault.empty()) return fault;
  gnutls_init(&session_, GNUTLS_CLIENT | GNUTLS_NONBLOCK);
  gnutls_set_default_priority(session_);
  gnutls_credentials_set(session_, GNUTLS_CRD_CERTIFICATE, credentials_);
  gnutls_transport_set_int(session_, socket_);
  gnutls_handshake_set_timeout(session_, GNUTLS_INDEFINITE_TIMEOUT);  // Await() has the deadline
  const std::string& name = settings.server_name.empty() ? host : settings.server_name;
  if (!IsAddress(name)) gnutls_server_name_set(session_, GNUTLS_NAME_DNS, name.data(), name.size());
  if (!settings.skips_verification) gnutls_session_set_verify_cert(session_, name.c_str(), 0);
  return Handshake();
}

std::string Connection::Handshake() {
  for (;;) {
    const int result = gnutls_handshake(session_);
    if (result == GNUTLS_E_SUCCESS) return "";
    if (result == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) {
      gnutls_datum_t reason{};
      gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(session_),
                                                   GNUTLS_CRT_X509, &reason, 0);
      std::string text(reinterpret_cast<const char*>(reason.data), reason.size);
      gnutls_free(reason.data);
      return "TLS: " + text.substr(0, text.find_last_not_of(" \n") + 1);
    }
    if (std::string fault = AwaitTls(result); !fault.empty()) return fault;
  }
}

std::string Connection::SendTls(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = gnutls_record_send(session_, text.data(), text.size());
    if (sent >= 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (std::string fault = AwaitTls(static_cast<int>(sent)); !fault.empty()) {
      return fault;
    }
  }
  return "";
}

std::string Connection::ReceiveTls(std::string& text, bool& is_over) {
  std::array<char, kReceivedBytes> bytes;
  const ssize_t size = gnutls_record_recv(session_, bytes.data(), bytes.size());
  // Many servers close without a goodbye. A body that is cut is seen by its length.
  is_over = size == 0 || size == GNUTLS_E_PREMATURE_TERMINATION;
  if (is_over) return "";
  if (size < 0) return AwaitTls(static_cast<int>(size));
  text.append(bytes.data(), static_cast<size_t>(size));
  return "";
}

}  // namespace nccl_exporter::exporter
