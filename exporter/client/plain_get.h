// SPDX-License-Identifier: Apache-2.0
// PlainGet(), one HTTP request without TLS or a login: to a daemon on this node. For any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace nccl_exporter::exporter {

struct PlainRequest {
  std::string host;  // a name or an address, IPv6 without brackets
  std::string port;
  std::string path;
  // For all that is sent and received. A name is resolved before, with the resolver's own patience.
  std::chrono::milliseconds patience;
  size_t most_bytes;  // of the answer, its head included
};

// The peer may be anybody: nothing in it is checked beyond what is said here.
struct PlainAnswer {
  std::string status_line;  // without its end; may be anything but a line feed
  int status = 0;           // 0: the status line is not HTTP
  std::string body;         // whole, by its Content-Length
  std::string fault;        // why there is no whole answer; empty: there is
  bool is_connected = false;
};

PlainAnswer PlainGet(const PlainRequest& request);

}  // namespace nccl_exporter::exporter
