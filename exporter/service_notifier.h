// SPDX-License-Identifier: Apache-2.0
// What systemd is told of a service of Type=notify: ready, stopping, alive.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace nccl_exporter {

// Of one thread. Without systemd everything here does nothing.
class ServiceNotifier {
 public:
  // Takes $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID out of the environment. Before other threads begin.
  ServiceNotifier();
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  void Ready() const { Send("READY=1"); }
  void Stopping() const { Send("STOPPING=1"); }
  void Alive() const { Send("WATCHDOG=1"); }

  // How often Alive() is due: half of what systemd waits for it. Nothing: systemd does not wait for it.
  std::optional<std::chrono::nanoseconds> watchdog_interval() const { return watchdog_interval_; }

 private:
  void Send(const std::string& message) const;

  std::string path_;  // of the socket; empty: there is none
  std::optional<std::chrono::nanoseconds> watchdog_interval_;
  int socket_ = -1;
};

}  // namespace nccl_exporter
