// SPDX-License-Identifier: Apache-2.0
// Text of other processes, made valid UTF-8 or quoted: label values, logs and dumps. Pure
// functions, for any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "proto/utf8.h"

namespace nccl_exporter::exporter {

// U+FFFD, in place of each byte that is no part of a character.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

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
      std::snprintf(escape, sizeof escape, "\\u%04x",
                    static_cast<unsigned>(static_cast<uint8_t>(first)));
      out += escape;
    } else if (bytes == 2 && first == '\xC2' && static_cast<uint8_t>(text[1]) < 0xA0) {
      char escape[8];  // U+0080 to U+009F: terminals take them for ESC and a letter
      std::snprintf(escape, sizeof escape, "\\u%04x",
                    static_cast<unsigned>(static_cast<uint8_t>(text[1])));
      out += escape;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  out += '"';
}

}  // namespace nccl_exporter::exporter
