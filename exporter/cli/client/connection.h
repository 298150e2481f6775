// SPDX-License-Identifier: Apache-2.0
// Connection, one TCP connection with a deadline, with TLS where it is asked for. For one thread.
#pragma once

#include <gnutls/gnutls.h>
#include <netdb.h>
#include <sys/types.h>

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

// Functions return what went wrong; an empty text if nothing did.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Connection(Clock::time_point deadline) : deadline_(deadline) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The connection is open by `until`, which is no later than the deadline.
  std::string Open(const addrinfo& peer, Clock::time_point until);
  // After Open(): what follows is encrypted, and the peer is `host`.
  std::string StartTls(const TlsSettings& settings, const std::string& host);
  std::string Send(std::string_view text);
  // Adds what has come to `text`. Sets `is_over` where the peer has closed.
  std::string Receive(std::string& text, bool& is_over);

 private:
  // The next call of the socket waits no longer than until then.
  std::string WaitAtMost(Clock::time_point until);
  std::string LoadTls(const TlsSettings& settings);
  // The fault of a call that returned `result`, below 0; empty if the call may be made again.
  std::string FaultOf(ssize_t result) const;

  const Clock::time_point deadline_;
  int socket_ = -1;
  gnutls_certificate_credentials_t credentials_ = nullptr;
  gnutls_session_t session_ = nullptr;  // null: no TLS
};

}  // namespace nccl_exporter::exporter
