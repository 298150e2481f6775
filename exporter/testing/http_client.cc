// SPDX-License-Identifier: Apache-2.0
// libcurl sends requests, a plain socket the bytes that libcurl refuses to send.
#include "exporter/testing/http_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>

namespace nccl_exporter::exporter {
namespace {

// A server that hangs fails its test with an answer of status 0, before the test's time limit ends
// it without a message.
constexpr long kTimeoutSeconds = 60;

size_t AppendBody(char* data, size_t size, size_t count, void* body) {
  static_cast<std::string*>(body)->append(data, size * count);
  return size * count;
}

size_t AddHeader(char* data, size_t size, size_t count, void* headers) {
  std::string line(data, size * count);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  const size_t colon = line.find(": ");
  if (colon != std::string::npos) {
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    (*static_cast<std::map<std::string, std::string>*>(headers))[name] = line.substr(colon + 2);
  }
  return size * count;
}

void UseTls(CURL* curl, const ClientTls& tls) {
  curl_easy_setopt(curl, CURLOPT_CAINFO, tls.ca_file.c_str());
  if (!tls.certificate_file.empty()) {
    curl_easy_setopt(curl, CURLOPT_SSLCERT, tls.certificate_file.c_str());
    curl_easy_setopt(curl, CURLOPT_SSLKEY, tls.key_file.c_str());
  }
  constexpr std::array kNewest{long{CURL_SSLVERSION_MAX_TLSv1_0}, long{CURL_SSLVERSION_MAX_TLSv1_1},
                               long{CURL_SSLVERSION_MAX_TLSv1_2},
                               long{CURL_SSLVERSION_MAX_TLSv1_3}};
  curl_easy_setopt(curl, CURLOPT_SSLVERSION,
                   kNewest.at(static_cast<size_t>(tls.newest_minor)) | CURL_SSLVERSION_TLSv1_0);
  // OpenSSL speaks versions below 1.2 at its lowest level of security only.
  if (tls.newest_minor < 2) curl_easy_setopt(curl, CURLOPT_SSL_CIPHER_LIST, "ALL:@SECLEVEL=0");
}

HttpAnswer RequestUrl(const std::string& url, const std::string& method,
                      const std::vector<std::string>& headers, const ClientTls* tls) {
  HttpAnswer answer;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  curl_slist* lines = curl_slist_append(nullptr, "Accept:");  // none but those given
  for (const std::string& header : headers) lines = curl_slist_append(lines, header.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, kTimeoutSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, lines);
  if (tls != nullptr) UseTls(curl.get(), *tls);
  if (method == "HEAD") {
    curl_easy_setopt(curl.get(), CURLOPT_NOBODY, 1L);
  } else {
    curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method.c_str());
  }
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, AppendBody);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer.body);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, AddHeader);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, &answer.headers);
  long status = 0;
  if (curl_easy_perform(curl.get()) == CURLE_OK)
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  curl_slist_free_all(lines);
  return answer;
}

}  // namespace

HttpAnswer Request(int port, const std::string& method, const std::string& path,
                   const std::vector<std::string>& headers, const ClientTls* tls) {
  const std::string scheme = tls == nullptr ? "http" : "https";
  return RequestUrl(scheme + "://127.0.0.1:" + std::to_string(port) + path, method, headers, tls);
}

HttpAnswer HttpGet(const std::string& url, const std::vector<std::string>& headers) {
  return RequestUrl(url, "GET", headers, nullptr);
}

int Send(int port, const std::string& bytes, const std::string& from) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, from.c_str(), &address.sin_addr);
  if (bind(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return close(connection), -1;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size())) {
    return connection;
  }
  close(connection);
  return -1;
}

std::string Exchange(int port, const std::string& bytes, const std::string& from) {
  std::string answer;
  const int connection = Send(port, bytes, from);
  if (connection < 0) return answer;
  char part[4096];
  for (ssize_t got = recv(connection, part, sizeof part, 0); got > 0;
       got = recv(connection, part, sizeof part, 0)) {
    answer.append(part, static_cast<size_t>(got));
  }
  close(connection);
  return answer;
}

}  // namespace nccl_exporter::exporter
