// SPDX-License-Identifier: Apache-2.0
#include "tests/system/daemon.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

namespace nccl_exporter {

int FreePort() {
  thread_local std::mt19937 random{std::random_device()()};
  std::uniform_int_distribution<uint16_t> ports(20000, 32767);
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(ports(random));
    const bool is_bound =
        bind(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(socket_fd);
    if (is_bound) return ntohs(address.sin_port);
  }
  ADD_FAILURE() << "no free port";
  return 0;
}

Daemon::Daemon(const std::string& segment_directory, std::vector<std::string> options,
               const std::string& program)
    : port_(FreePort()) {
  std::vector<std::string> command{program,
                                   "--web.listen-address=127.0.0.1:" + std::to_string(port_),
                                   "--segment.dir=" + segment_directory};
  command.insert(command.end(), options.begin(), options.end());
  process_ = std::make_unique<exporter::ChildProcess>(command);
  EXPECT_TRUE(exporter::Eventually(
      [&] { return !process_->IsRunning() || Get("/-/ready").status == 200; }));
  EXPECT_TRUE(process_->IsRunning()) << process_->AllOutput();
}

Exposition Daemon::Scrape() const {
  const exporter::HttpAnswer answer = Get("/metrics");
  EXPECT_EQ(answer.status, 200);
  return Exposition(answer.body);
}

std::vector<std::string> SimulatorCommand(const std::string& segment_directory,
                                          const std::string& truth,
                                          std::vector<std::string> options) {
  std::vector<std::string> command{kSimulatorPath,  "--plugin",        kPluginPath,
                                   "--segment-dir", segment_directory, "--truth",
                                   truth,           "--env",           "NCCL_ALLGATHERV_ENABLE=0"};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

}  // namespace nccl_exporter
