// SPDX-License-Identifier: Apache-2.0
// HttpAnswer, and requests over loopback, for tests.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace nccl_exporter::exporter {

struct HttpAnswer {
  int status = 0;                              // 0: no answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // unchanged, compressed or not
};

// TLS of a client. Files: the trusted authority, and the client's certificate and key. Empty: none.
struct ClientTls {
  std::string ca_file;
  std::string certificate_file = {};
  std::string key_file = {};
  int newest_minor = 3;  // it speaks TLS 1.0 to this version
};

// `headers` are whole lines, "Accept: text/plain".
HttpAnswer Request(int port, const std::string& method, const std::string& path,
                   const std::vector<std::string>& headers = {}, const ClientTls* tls = nullptr);

// Request("GET") for a whole URL.
HttpAnswer HttpGet(const std::string& url, const std::vector<std::string>& headers = {});

inline HttpAnswer GetByTls(int port, const std::string& path, const ClientTls& tls) {
  return Request(port, "GET", path, {}, &tls);
}

inline HttpAnswer Get(int port, const std::string& path,
                      const std::vector<std::string>& headers = {}) {
  return Request(port, "GET", path, headers);
}

// Connects from that address of this host, sends `bytes` and returns the open socket; -1 if there
// is no connection. The caller reads and closes it.
int Send(int port, const std::string& bytes, const std::string& from = "127.0.0.1");

// Sends `bytes` unchanged. Returns everything that the server sends until it closes the connection.
std::string Exchange(int port, const std::string& bytes, const std::string& from = "127.0.0.1");

}  // namespace nccl_exporter::exporter
