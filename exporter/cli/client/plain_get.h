// SPDX-License-Identifier: Apache-2.0
// PlainGet() and PlainPost(), one HTTP request without redirects or proxies: to a daemon, to
// Prometheus, and to a receiver of OTLP. For any thread.
#pragma once

#include <netdb.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/cli/client/http_address.h"

namespace nccl_exporter::exporter {

// As tls_config of Prometheus' HTTP clients. Empty files: the authorities of the system, and no
// certificate of our own.
struct TlsSettings {
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  std::string server_name;  // empty: the host of the request
  bool skips_verification = false;

  bool operator==(const TlsSettings&) const = default;
};

struct PlainRequest {
  HttpAddress server;
  std::string path;  // behind the server's prefix
  // For all that is sent and received. A name is resolved before, with the resolver's own patience.
  std::chrono::milliseconds patience;
  size_t most_bytes;                            // of the answer, its head included
  std::string host_field = "localhost";         // of the head
  std::string fields = {};                      // further ones, each with its end
  TlsSettings tls = {};                         // used if the server has TLS
  std::optional<std::string_view> posted = {};  // the body of a POST; nothing: a GET
};

// The peer may be anybody: nothing in it is checked beyond what is said here.
struct PlainAnswer {
  std::string status_line;  // without its end; may be anything but a line feed
  int status = 0;           // 0: the status line is not HTTP
  std::string head = {};    // status line and fields, without the empty line at their end
  std::string body;         // whole, by its Content-Length or its chunks
  std::string fault;        // why there is no whole answer; empty: there is
  bool is_connected = false;
};

PlainAnswer PlainGet(const PlainRequest& request);
// From these addresses of the host, one after the other until one is connected. Each gets an equal
// part of the time that is left, so that one that drops all packets does not take it all.
PlainAnswer PlainGet(const PlainRequest& request, const addrinfo* peers);

// Sends `body`. A server may answer before it has taken all of it: that is its answer, too.
PlainAnswer PlainPost(PlainRequest request, std::string_view body);

// The value of a field of `head`, in lower case and without blanks before it. `name` is in lower
// case. Empty where the head has no such field. Pure.
std::string FieldOf(std::string_view head, const std::string& name);

// Takes apart what came of an answer so far; false while more has to come, or with `is_over`, if
// the end is missing. Chunks are joined when the last one may be there: not after each piece that
// comes, which would take the square of the time. Sets nothing but the status line, status, head
// and body. Pure.
bool TakeApart(std::string_view text, bool is_over, PlainAnswer& answer);

}  // namespace nccl_exporter::exporter
