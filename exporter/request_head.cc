// SPDX-License-Identifier: Apache-2.0
// Line by line, each against its grammar in RFC 9112.
#include "exporter/request_head.h"

#include <algorithm>
#include <optional>

namespace nccl_exporter {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr int kBadRequest = 400;
constexpr int kVersionNotSupported = 505;

bool IsTokenCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) { return !text.empty() && std::ranges::all_of(text, IsTokenCharacter); }

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) { return std::ranges::equal(a, b, {}, Lower, Lower); }

std::string_view TakeUntil(std::string_view& rest, std::string_view end) {
  const size_t at = rest.find(end);
  const std::string_view taken = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + end.size());
  return taken;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = Lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

// Path and query of http://host/path?query, which proxies send.
std::string_view WithoutAuthority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualIgnoringCase(target.substr(0, scheme.size()), scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    return path == std::string_view::npos || target[path] == '?' ? "/" : target.substr(path);
  }
  return target;
}

bool ReadTarget(std::string_view target, RequestHead& head) {
  head.target_bytes = target.size();
  const bool is_visible = std::ranges::all_of(target, [](char c) { return c > ' ' && c <= '~'; });
  const std::string_view origin = WithoutAuthority(target);
  if (!is_visible || (!origin.starts_with('/') && origin != "*")) return false;
  std::optional<std::string> path = PercentDecoded(origin.substr(0, origin.find('?')));
  if (!path) return false;
  head.path = std::move(*path);
  return true;
}

int ReadRequestLine(std::string_view line, RequestHead& head, bool& wants_host) {
  head.method = TakeUntil(line, " ");
  const std::string_view target = TakeUntil(line, " ");
  if (!IsToken(head.method)) return kBadRequest;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool is_http =
      line.size() == 8 && line.starts_with("HTTP/") && is_digit(line[5]) && line[6] == '.' && is_digit(line[7]);
  if (!is_http) return kBadRequest;
  if (line != "HTTP/1.0" && line != "HTTP/1.1") return kVersionNotSupported;
  wants_host = line == "HTTP/1.1";
  return ReadTarget(target, head) ? 0 : kBadRequest;
}

bool ReadHeader(std::string_view line, RequestHead& head) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(colon + 1);
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!value.empty() && is_blank(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
  const bool is_value = std::ranges::all_of(
      value, [](char c) { return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != '\x7f'); });
  if (!IsToken(name) || !is_value) return false;
  head.header_bytes += name.size() + value.size();
  head.headers.emplace_back(name, value);
  return true;
}

}  // namespace

std::string RequestHead::Header(std::string_view name) const {
  std::string joined;
  for (const auto& [other, value] : headers) {
    if (!EqualIgnoringCase(other, name)) continue;
    if (!joined.empty()) joined += ',';
    joined += value;
  }
  return joined;
}

size_t HeadBytes(std::string_view bytes) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t at = bytes.find(kEnd);
  return at == std::string_view::npos ? at : at + kEnd.size();
}

int ParseRequestHead(std::string_view bytes, RequestHead& head) {
  bool wants_host = false;
  if (const int status = ReadRequestLine(TakeUntil(bytes, kLineEnd), head, wants_host); status != 0) return status;
  while (!bytes.empty() && bytes != kLineEnd) {
    if (!ReadHeader(TakeUntil(bytes, kLineEnd), head)) return kBadRequest;
  }
  const auto hosts =
      std::ranges::count_if(head.headers, [](const auto& h) { return EqualIgnoringCase(h.first, "Host"); });
  return hosts > 1 || (wants_host && hosts == 0) ? kBadRequest : 0;
}

}  // namespace nccl_exporter
