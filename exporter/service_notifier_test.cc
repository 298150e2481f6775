// SPDX-License-Identifier: Apache-2.0
// A socket in place of systemd's.
#include "exporter/service_notifier.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace nccl_exporter::exporter {
namespace {

// Receives at an abstract name, or at a path.
class Receiver {
 public:
  explicit Receiver(const std::string& name)
      : name_(name), socket_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
  }
  ~Receiver() {
    close(socket_);
    unlink(name_.c_str());
  }

  std::string Receive() const {
    char text[100];
    const ssize_t size = recv(socket_, text, sizeof text, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  const std::string name_;
  const int socket_;
};

TEST(ServiceNotifierTest, TellsASocketWithAnAbstractNameOrAPath) {
  const std::string pid = std::to_string(getpid());
  for (const std::string& name : {"@nccl-exporter-test-" + pid, "/tmp/nccl-exporter-test-" + pid}) {
    const Receiver systemd(name);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    const ServiceNotifier notifier;
    notifier.Ready();
    EXPECT_EQ(systemd.Receive(), "READY=1");
    notifier.Alive();
    EXPECT_EQ(systemd.Receive(), "WATCHDOG=1");
    notifier.Stopping();
    EXPECT_EQ(systemd.Receive(), "STOPPING=1");
    EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr) << "children would speak for the service";
    EXPECT_FALSE(notifier.watchdog_interval());
  }
}

// Regression: a socket for each message was lost where there was no descriptor for it, and systemd
// killed a daemon that was alive.
TEST(ServiceNotifierTest, TellsWithoutAFurtherDescriptor) {
  const std::string name = "@nccl-exporter-test-" + std::to_string(getpid());
  const Receiver systemd(name);
  setenv("NOTIFY_SOCKET", name.c_str(), 1);
  const ServiceNotifier notifier;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(dup(0), -1);
  notifier.Alive();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(systemd.Receive(), "WATCHDOG=1");
}

TEST(ServiceNotifierTest, IsSilentWithoutSystemd) {
  const ServiceNotifier notifier;
  notifier.Ready();
  EXPECT_FALSE(notifier.watchdog_interval());
}

TEST(ServiceNotifierTest, TellsHalfTheWatchdogsPatienceToTheProcessThatItIsMeantFor) {
  const auto interval = [](const char* microseconds, int pid) {
    setenv("NOTIFY_SOCKET", "@nobody-listens", 1);
    setenv("WATCHDOG_USEC", microseconds, 1);
    setenv("WATCHDOG_PID", std::to_string(pid).c_str(), 1);
    return ServiceNotifier().watchdog_interval();
  };
  EXPECT_EQ(interval("30000000", getpid()), std::chrono::seconds(15));
  EXPECT_EQ(interval("30000000", getpid() + 1), std::nullopt);
  for (const char* const wrong : {"", "0", "-5", "1e6", "99999999999999999999"}) {
    EXPECT_EQ(interval(wrong, getpid()), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
