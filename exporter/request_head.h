// SPDX-License-Identifier: Apache-2.0
// The head of an HTTP/1 request, from its bytes to its parts.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nccl_exporter {

struct RequestHead {
  std::string method;
  std::string path;         // decoded, without the query; starts with a slash, except for `*`
  size_t target_bytes = 0;  // of the request line: path and query as they came
  size_t header_bytes = 0;  // names and values
  std::vector<std::pair<std::string, std::string>> headers;  // in order, names as they came

  // The values of all headers of that name, in any case, joined by commas.
  std::string Header(std::string_view name) const;
};

// Where the head ends in bytes that came in: behind its empty line, or npos where that has not come yet.
size_t HeadBytes(std::string_view bytes);

// Reads a head that ends with its empty line. Returns the status to answer where it is none: 400, or 505 for a version
// other than HTTP/1.0 and 1.1; else 0. Strict, as RFC 9112 wants it of who may stand behind others: lines end with
// carriage return and line feed, headers are not folded, HTTP/1.1 names one host.
int ParseRequestHead(std::string_view bytes, RequestHead& head);

}  // namespace nccl_exporter
