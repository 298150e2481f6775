// SPDX-License-Identifier: Apache-2.0
// A socket that does not block, and poll().
#include "exporter/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace nccl_exporter {
namespace {

// For what a peer may send that nobody reads: the body of a POST that was refused.
constexpr std::chrono::milliseconds kEndLimit{500};
constexpr size_t kEndLimitBytes = size_t{1} << 18;

bool MayRetry() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Connection::~Connection() {
  SSL_free(tls_);
  close(socket_);
}

bool Connection::Wait(short events, Clock::time_point deadline) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{.fd = socket_, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 60000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

// What to do after a call of OpenSSL that did not do all: waits for what it waits for.
Connection::Progress Connection::AfterTls(int result, Clock::time_point deadline) const {
  const int reason = SSL_get_error(tls_, result);
  ERR_clear_error();
  const bool wants_read = reason == SSL_ERROR_WANT_READ;
  if (!wants_read && reason != SSL_ERROR_WANT_WRITE) return Progress::kFailed;
  return Wait(wants_read ? POLLIN : POLLOUT, deadline) ? Progress::kRetry : Progress::kFailed;
}

bool Connection::Handshake(SSL_CTX* context, Clock::time_point deadline) {
  tls_ = SSL_new(context);
  if (tls_ == nullptr || SSL_set_fd(tls_, socket_) != 1) return false;
  ERR_clear_error();
  for (;;) {
    const int result = SSL_accept(tls_);
    if (result == 1) return true;
    if (AfterTls(result, deadline) == Progress::kFailed) return false;
  }
}

size_t Connection::Read(char* bytes, size_t size, Clock::time_point deadline) {
  for (;;) {
    if (tls_ != nullptr) {
      size_t got = 0;
      const int result = SSL_read_ex(tls_, bytes, size, &got);
      if (result == 1) return got;
      if (AfterTls(result, deadline) == Progress::kFailed) return 0;
      continue;
    }
    const ssize_t got = recv(socket_, bytes, size, 0);
    if (got >= 0) return static_cast<size_t>(got);
    if (!MayRetry() || !Wait(POLLIN, deadline)) return 0;
  }
}

bool Connection::Write(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    size_t taken = 0;
    if (tls_ != nullptr) {
      const int result = SSL_write_ex(tls_, bytes.data(), bytes.size(), &taken);
      if (result != 1 && AfterTls(result, deadline) == Progress::kFailed) return false;
    } else {
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && (!MayRetry() || !Wait(POLLOUT, deadline))) return false;
      taken = sent < 0 ? 0 : static_cast<size_t>(sent);
    }
    bytes.remove_prefix(taken);
  }
  return true;
}

void Connection::End() {
  if (tls_ != nullptr && SSL_is_init_finished(tls_)) SSL_shutdown(tls_);
  ERR_clear_error();
  if (shutdown(socket_, SHUT_WR) != 0) return;
  const auto deadline = Clock::now() + kEndLimit;
  char ignored[4096];
  for (size_t read = 0; read < kEndLimitBytes && Wait(POLLIN, deadline);) {
    const ssize_t got = recv(socket_, ignored, sizeof ignored, 0);
    if (got == 0 || (got < 0 && !MayRetry())) return;
    read += got < 0 ? 0 : static_cast<size_t>(got);
  }
}

void Connection::Cut() const { shutdown(socket_, SHUT_RDWR); }

}  // namespace nccl_exporter
