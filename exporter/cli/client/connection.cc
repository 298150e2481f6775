// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/connection.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "exporter/cli/client/http_address.h"

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kNoAnswerInTime = "no answer in time";
constexpr size_t kReceivedBytes = 16384;  // a record of TLS

// Where other distributions than that of this GnuTLS have the authorities that they trust.
constexpr std::array kSystemTrust{"/etc/ssl/certs/ca-certificates.crt",
                                  "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"};

}  // namespace

Connection::~Connection() {
  if (session_ != nullptr) gnutls_deinit(session_);
  if (credentials_ != nullptr) gnutls_certificate_free_credentials(credentials_);
  if (socket_ >= 0) ::close(socket_);
}

std::string Connection::Open(const addrinfo& peer, Clock::time_point until) {
  socket_ = ::socket(peer.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return std::strerror(errno);
  if (std::string fault = WaitAtMost(until); !fault.empty()) return fault;
  if (::connect(socket_, peer.ai_addr, peer.ai_addrlen) == 0) return "";
  return errno == EINPROGRESS || errno == EAGAIN ? kNoAnswerInTime : std::strerror(errno);
}

std::string Connection::Send(std::string_view text) {
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

std::string Connection::Receive(std::string& text, bool& is_over) {
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

std::string Connection::WaitAtMost(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::microseconds>(until - Clock::now()).count();
  if (left <= 0) return kNoAnswerInTime;
  constexpr int64_t kSecond = 1000000;
  const timeval time{.tv_sec = left / kSecond, .tv_usec = left % kSecond};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  return "";
}

std::string Connection::FaultOf(ssize_t result) const {
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

std::string Connection::LoadTls(const TlsSettings& settings) {
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

std::string Connection::StartTls(const TlsSettings& settings, const std::string& host) {
  if (std::string fault = LoadTls(settings); !fault.empty()) return fault;
  gnutls_init(&session_, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL);
  gnutls_set_default_priority(session_);
  gnutls_credentials_set(session_, GNUTLS_CRD_CERTIFICATE, credentials_);
  gnutls_transport_set_int(session_, socket_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
  gnutls_handshake_set_timeout(session_, static_cast<unsigned>(std::max<int64_t>(left.count(), 1)));
  const std::string& name = settings.server_name.empty() ? host : settings.server_name;
  if (!IsAddress(name)) gnutls_server_name_set(session_, GNUTLS_NAME_DNS, name.data(), name.size());
  if (!settings.skips_verification) gnutls_session_set_verify_cert(session_, name.c_str(), 0);
  for (;;) {
    if (std::string fault = WaitAtMost(deadline_); !fault.empty()) return fault;
    const int result = gnutls_handshake(session_);
    if (result == GNUTLS_E_SUCCESS) return "";
    if (std::string fault = FaultOf(result); !fault.empty()) return fault;
  }
}

}  // namespace nccl_exporter::exporter
