// SPDX-License-Identifier: Apache-2.0
// One accepted connection: bytes in and out, plain or by TLS, never for longer than allowed.
#pragma once

#include <openssl/types.h>

#include <chrono>
#include <cstddef>
#include <string_view>

namespace nccl_exporter {

// Of one thread, except for Cut().
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // Owns the socket, which does not block. The calling thread blocks SIGPIPE where there is TLS: OpenSSL's writes raise
  // it.
  explicit Connection(int socket) : socket_(socket) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Speaks TLS from now on. False where the peer does not, or not in time.
  bool Handshake(SSL_CTX* context, Clock::time_point deadline);

  // The number of bytes read; 0 where the peer has ended, or failed, or the time is over.
  size_t Read(char* bytes, size_t size, Clock::time_point deadline);

  // False where the peer does not take all of it in time.
  bool Write(std::string_view bytes, Clock::time_point deadline);

  // Tells the peer that this was all, and lets it take it: a socket that is closed with input unread takes back what
  // it sent.
  void End();

  // Any thread, while the object lives: whoever waits for the peer waits no longer.
  void Cut() const;

 private:
  enum class Progress { kRetry, kFailed };

  bool Wait(short events, Clock::time_point deadline) const;
  Progress AfterTls(int result, Clock::time_point deadline) const;

  const int socket_;
  SSL* tls_ = nullptr;
};

}  // namespace nccl_exporter
