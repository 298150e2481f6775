// SPDX-License-Identifier: Apache-2.0
// What must hold of a request's head whatever a client sends: nothing in it can become a line of its own.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "exporter/basic_auth.h"
#include "exporter/request_head.h"
#include "exporter/text_fuzz.h"

namespace nccl_exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "request_fuzz: broken promise: %s\n", promise);
  std::abort();
}

bool IsOneLine(std::string_view text) { return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos; }

void CheckHead(const RequestHead& head, std::string_view bytes) {
  Require(!head.method.empty() && IsOneLine(head.method), "a method is a token");
  Require(head.path.starts_with('/') || head.path == "*", "a path starts with a slash");
  Require(head.path.find('\0') == std::string::npos, "a path has no zero byte");
  Require(head.path.size() <= head.target_bytes + 1, "decoding makes a path no longer");
  size_t header_bytes = 0;
  for (const auto& [name, value] : head.headers) {
    Require(!name.empty() && IsOneLine(name) && IsOneLine(value), "a header is one line");
    Require(head.Header(name).find(value) != std::string::npos, "a header is found by its name");
    header_bytes += name.size() + value.size();
  }
  Require(header_bytes == head.header_bytes && header_bytes + head.target_bytes < bytes.size(), "bytes are counted");
  if (const auto user = ParseBasicAuthorization(head.Header("Authorization"))) {
    Require(user->first.find(':') == std::string::npos, "a user's name has no colon");
    Require(user->second.find('\0') == std::string::npos, "a password has no zero byte");
  }
}

}  // namespace

void CheckInput(std::string_view input) {
  const size_t size = HeadBytes(input);
  if (size == std::string_view::npos) return;
  const std::string_view bytes = input.substr(0, size);
  RequestHead head;
  const int status = ParseRequestHead(bytes, head);
  Require(status == 0 || status == 400 || status == 505, "a head is read or has a status");
  if (status != 0) return;
  CheckHead(head, bytes);
  std::string more(bytes.substr(0, bytes.size() - 2));
  RequestHead again;
  Require(ParseRequestHead(more + "X-More: 1\r\n\r\n", again) == 0 && again.path == head.path &&
              again.headers.size() == head.headers.size() + 1,
          "one more header changes nothing else");
  Require(ParseRequestHead(more + "Host: a\r\nHost: b\r\n\r\n", again) == 400, "two hosts are none");
}

}  // namespace nccl_exporter::fuzz
