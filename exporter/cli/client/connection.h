// SPDX-License-Identifier: Apache-2.0
// Connection, one TCP connection with a deadline, with TLS where it is asked for. For one thread.
#pragma once

#include <gnutls/gnutls.h>
#include <netdb.h>

#include <chrono>
#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

// As tls_config of Prometheus' HTTP clients. Empty files: the authorities of the system, and no
// certificate of our own.
struct TlsSettings {
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  std::string server_name;  // empty: the host of the request
  bool skips_verification = false;

  bool operator==(const TlsSettings&) const = default;
};

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Connection(Clock::time_point deadline) : deadline_(deadline) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // What went wrong; empty if nothing did. The same below. The connection is open by `until`, which
  // is no later than the deadline.
  std::string Open(const addrinfo& peer, Clock::time_point until);
  // After Open(): what follows is encrypted, and the peer is `host`.
  std::string StartTls(const TlsSettings& settings, const std::string& host);
  std::string Send(std::string_view text);
  // Adds what has come to `text`. Sets `is_over` where the peer has closed.
  std::string Receive(std::string& text, bool& is_over);

 private:
  std::string Await(short events) { return Await(events, deadline_); }
  std::string Await(short events, Clock::time_point until);
  // Waits until GnuTLS can go on after `result`; the fault if it cannot.
  std::string AwaitTls(int result);
  std::string LoadTls(const TlsSettings& settings);
  std::string Handshake();
  std::string SendTls(std::string_view text);
  std::string ReceiveTls(std::string& text, bool& is_over);

  const Clock::time_point deadline_;
  int socket_ = -1;
  gnutls_certificate_credentials_t credentials_ = nullptr;
  gnutls_session_t session_ = nullptr;  // null: no TLS
};

}  // namespace nccl_exporter::exporter
