// SPDX-License-Identifier: Apache-2.0
// ServiceNotifier, the messages of a service of Type=notify to systemd: ready, stopping, alive. For
// one thread.
//
// The protocol is that of sd_notify(3): datagrams of assignments to a Unix socket. libsystemd is
// not needed for them.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter {

// Without systemd every function does nothing. Messages need no further descriptor: a process that
// has none left is alive, and must be able to say so.
class ServiceNotifier {
 public:
  // Removes $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID from the environment. Call before
  // other threads start, because no thread may read the environment meanwhile.
  ServiceNotifier();
  ~ServiceNotifier() {
    if (socket_ >= 0) close(socket_);
  }
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  void Ready() const { Send("READY=1"); }
  void Stopping() const { Send("STOPPING=1"); }
  void Alive() const { Send("WATCHDOG=1"); }

  // Interval in which Alive() is due: half of the time that systemd waits for it. Nothing: systemd
  // does not wait for it.
  std::optional<std::chrono::nanoseconds> watchdog_interval() const { return watchdog_interval_; }

 private:
  static std::string Take(const char* variable) {
    const char* const text = std::getenv(variable);
    std::string value = text == nullptr ? "" : text;
    unsetenv(variable);
    return value;
  }

  static std::optional<int64_t> Number(const std::string& text) {
    const std::optional<int64_t> number = NumberIn<int64_t>(text);
    return number && *number > 0 ? number : std::nullopt;
  }

  void Send(const std::string& message) const;

  const std::string path_;  // of systemd's socket; empty: there is none
  const int socket_;        // descriptor of the sender; -1: none
  std::optional<std::chrono::nanoseconds> watchdog_interval_;
};

inline ServiceNotifier::ServiceNotifier()
    : path_(Take("NOTIFY_SOCKET")),
      socket_(path_.empty() ? -1 : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  const std::optional<int64_t> period_us = Number(Take("WATCHDOG_USEC"));
  const std::optional<int64_t> pid = Number(Take("WATCHDOG_PID"));
  const bool is_for_us = !path_.empty() && (!pid || *pid == getpid());
  // A day. A longer period protects nothing, and its nanoseconds could overflow.
  constexpr int64_t kLongestUs = int64_t{86400} * 1000000;
  if (period_us && *period_us <= kLongestUs && is_for_us) {
    watchdog_interval_ = std::chrono::microseconds(*period_us) / 2;
  }
}

// A message that systemd cannot take is lost: waiting for systemd would stop the service.
inline void ServiceNotifier::Send(const std::string& message) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_ < 0 || path_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace nccl_exporter::exporter
