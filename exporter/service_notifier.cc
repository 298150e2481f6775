// SPDX-License-Identifier: Apache-2.0
// The protocol of sd_notify(3): datagrams of assignments to a Unix socket. libsystemd is not needed for a datagram.
#include "exporter/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace nccl_exporter {
namespace {

std::string Take(const char* variable) {
  const char* const text = std::getenv(variable);
  std::string value = text == nullptr ? "" : text;
  unsetenv(variable);
  return value;
}

std::optional<int64_t> Number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && number > 0;
  return is_number ? std::optional(number) : std::nullopt;
}

}  // namespace

ServiceNotifier::ServiceNotifier() : path_(Take("NOTIFY_SOCKET")) {
  const std::optional<int64_t> period_us = Number(Take("WATCHDOG_USEC"));
  const std::optional<int64_t> pid = Number(Take("WATCHDOG_PID"));
  if (path_.empty()) return;
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool is_for_us = !pid || *pid == getpid();
  constexpr int64_t kLongestUs = int64_t{86400} * 1000000;
  if (period_us && *period_us <= kLongestUs && is_for_us) {
    watchdog_interval_ = std::chrono::microseconds(*period_us) / 2;
  }
}

ServiceNotifier::~ServiceNotifier() {
  if (socket_ >= 0) close(socket_);
}

void ServiceNotifier::Send(const std::string& message) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_ < 0 || path_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace nccl_exporter
