// SPDX-License-Identifier: Apache-2.0
#include "tests/system/daemon.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

namespace nccl_exporter {
namespace {

size_t Append(char* data, size_t size, size_t count, void* text) {
  static_cast<std::string*>(text)->append(data, size * count);
  return size * count;
}

}  // namespace

int FreePort() {
  static std::mt19937 random{std::random_device()()};
  std::uniform_int_distribution<uint16_t> ports(20000, 32767);
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(ports(random));
    const bool is_bound = bind(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(socket_fd);
    if (is_bound) return ntohs(address.sin_port);
  }
  ADD_FAILURE() << "no free port";
  return 0;
}

HttpAnswer HttpGet(const std::string& url, const std::vector<std::string>& headers) {
  HttpAnswer answer;
  CURL* curl = curl_easy_init();
  curl_slist* list = nullptr;
  for (const std::string& header : headers) list = curl_slist_append(list, header.c_str());
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 20L);
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  if (curl_easy_perform(curl) == CURLE_OK) {
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
    const char* type = nullptr;
    curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
    if (type != nullptr) answer.content_type = type;
  }
  curl_slist_free_all(list);
  curl_easy_cleanup(curl);
  return answer;
}

Daemon::Daemon(const std::string& segment_directory, std::vector<std::string> options) : port_(FreePort()) {
  std::vector<std::string> command{kDaemonPath, "--web.listen-address=127.0.0.1:" + std::to_string(port_),
                                   "--segment.dir=" + segment_directory};
  command.insert(command.end(), options.begin(), options.end());
  process_ = std::make_unique<ChildProcess>(command);
  EXPECT_TRUE(Eventually([&] { return !process_->IsRunning() || Get("/-/ready").status == 200; }));
  EXPECT_TRUE(process_->IsRunning()) << process_->Output();
}

Exposition Daemon::Scrape() const {
  const HttpAnswer answer = Get("/metrics");
  EXPECT_EQ(answer.status, 200);
  return Exposition(answer.body);
}

std::vector<std::string> SimulatorCommand(const std::string& segment_directory, const std::string& truth,
                                          std::vector<std::string> options) {
  std::vector<std::string> command{kSimulatorPath,  "--plugin",        kPluginPath,
                                   "--segment-dir", segment_directory, "--truth",
                                   truth,           "--env",           "NCCL_ALLGATHERV_ENABLE=0"};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

}  // namespace nccl_exporter
