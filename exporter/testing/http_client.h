// SPDX-License-Identifier: Apache-2.0
// A client for tests of what is served over loopback.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace nccl_exporter {

struct HttpAnswer {
  int status = 0;                              // 0: no answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // as it came, compressed or not
};

// How to speak TLS: whom to trust, who to be, as files; empty: nobody.
struct ClientTls {
  std::string ca_file;
  std::string certificate_file = {};
  std::string key_file = {};
  bool up_to_tls_11 = false;
};

// `headers` are whole lines, "Accept: text/plain".
HttpAnswer Request(int port, const std::string& method, const std::string& path,
                   const std::vector<std::string>& headers = {}, const ClientTls* tls = nullptr);

// The same for a whole URL.
HttpAnswer HttpGet(const std::string& url, const std::vector<std::string>& headers = {});

inline HttpAnswer GetByTls(int port, const std::string& path, const ClientTls& tls) {
  return Request(port, "GET", path, {}, &tls);
}

inline HttpAnswer Get(int port, const std::string& path, const std::vector<std::string>& headers = {}) {
  return Request(port, "GET", path, headers);
}

// A connection from that address of this host that has sent `bytes` and waits to be read and closed; -1 where there is
// none.
int Send(int port, const std::string& bytes, const std::string& from = "127.0.0.1");

// Sends `bytes` as they are and returns all that comes back until the server closes the connection.
std::string Exchange(int port, const std::string& bytes, const std::string& from = "127.0.0.1");

}  // namespace nccl_exporter
