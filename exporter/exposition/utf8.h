// SPDX-License-Identifier: Apache-2.0
// Text of other processes, made valid UTF-8 or quoted: label values, logs and dumps. Pure functions, for any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace nccl_exporter {

// U+FFFD, in place of each byte that is no part of a character.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Bytes of the well-formed character that `text` begins with; 0 if it begins with none (Unicode 15, table 3-7). NUL
// counts as ill-formed, because parsers of exposition text take it for the end.
inline size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto is_between = [&](size_t i, uint8_t least, uint8_t greatest) {
    return least <= byte(i) && byte(i) <= greatest;
  };
  const uint8_t lead = byte(0);
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  if (!is_between(0, 0xC2, 0xF4)) return 0;
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and everything above U+10FFFF.
  const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t greatest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (!is_between(1, least, greatest)) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (!is_between(i, 0x80, 0xBF)) return 0;
  }
  return bytes;
}

// `text` as valid UTF-8 of at most `limit_bytes`, cut between characters.
inline std::string ValidUtf8(std::string_view text, size_t limit_bytes) {
  std::string valid;
  valid.reserve(std::min(text.size(), limit_bytes));
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const std::string_view character = bytes == 0 ? kReplacementCharacter : text.substr(0, bytes);
    if (valid.size() + character.size() > limit_bytes) break;
    valid += character;
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return valid;
}

// Appends `text` in double quotes, escaped as JSON and logfmt require.
inline void AppendQuoted(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const char first = text.front();
    if (bytes == 0) {
      out += kReplacementCharacter;
    } else if (first == '"' || first == '\\') {
      out += '\\';
      out += first;
    } else if (first == '\n') {
      out += "\\n";
    } else if (bytes == 1 && (static_cast<uint8_t>(first) < 0x20 || first == 0x7F)) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(first));
      out += escape;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  out += '"';
}

}  // namespace nccl_exporter
