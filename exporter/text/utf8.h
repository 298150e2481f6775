// SPDX-License-Identifier: Apache-2.0
// Text of other processes, made valid UTF-8 or quoted: label values, logs and traces. Pure
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

// The code point of a well-formed character.
inline uint32_t CodePointOf(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  uint32_t code = lead & (0xFFu >> (character.size() + 1));
  for (const char next : character.substr(1))
    code = code << 6 | (static_cast<uint8_t>(next) & 0x3F);
  return code;
}

// Whether a reader would see something other than the character: a terminal obeys it (C0, DEL, C1),
// or it is invisible, or turns the order of what follows (Unicode's format characters and line
// separators). With these a name looks like another one, or writes over the line before.
inline bool IsUnseen(uint32_t code) {
  const auto is_between = [&](uint32_t least, uint32_t greatest) {
    return least <= code && code <= greatest;
  };
  return code < 0x20 || is_between(0x7F, 0x9F) || code == 0xAD || code == 0x61C ||
         is_between(0x180B, 0x180F) || is_between(0x200B, 0x200F) || is_between(0x2028, 0x202E) ||
         is_between(0x2060, 0x206F) || is_between(0xFE00, 0xFE0F) || code == 0xFEFF ||
         is_between(0xFFF9, 0xFFFB) || is_between(0xE0000, 0xE0FFF);
}

// Text of other processes for every output: `text` as valid UTF-8 of at most `limit_bytes`, cut
// between characters, with `unseen` in place of what a reader would not see.
inline std::string ValidUtf8(std::string_view text, size_t limit_bytes = std::string_view::npos,
                             std::string_view unseen = kReplacementCharacter) {
  std::string visible;
  visible.reserve(std::min(text.size(), limit_bytes));
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    std::string_view character = bytes == 0 ? kReplacementCharacter : text.substr(0, bytes);
    if (IsUnseen(CodePointOf(character))) character = unseen;
    if (visible.size() + character.size() > limit_bytes) break;
    visible += character;
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return visible;
}

// Appends `text` in double quotes, escaped as JSON and logfmt require. What a reader would not see
// is an escape, too.
inline void AppendQuoted(std::string_view text, std::string& out) {
  constexpr uint32_t kLastOfOneEscape = 0xFFFF;
  out += '"';
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const char first = text.front();
    const uint32_t code = bytes == 0 ? 0 : CodePointOf(text.substr(0, bytes));
    if (bytes == 0 || (IsUnseen(code) && code > kLastOfOneEscape)) {
      out += kReplacementCharacter;
    } else if (first == '"' || first == '\\') {
      out += '\\';
      out += first;
    } else if (first == '\n') {
      out += "\\n";
    } else if (IsUnseen(code)) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", code & kLastOfOneEscape);
      out += escape;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  out += '"';
}

}  // namespace nccl_exporter::exporter
