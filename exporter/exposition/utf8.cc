// SPDX-License-Identifier: Apache-2.0
// UTF-8 by the table of well-formed byte sequences (Unicode 15, table 3-7).
#include "exporter/exposition/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace nccl_exporter {
namespace {

uint8_t ByteAt(std::string_view text, size_t index) {
  return index < text.size() ? static_cast<uint8_t>(text[index]) : uint8_t{0};
}

bool IsBetween(uint8_t byte, uint8_t least, uint8_t greatest) { return least <= byte && byte <= greatest; }

}  // namespace

size_t CharacterBytes(std::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  if (!IsBetween(lead, 0xC2, 0xF4)) return 0;
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and everything above U+10FFFF.
  const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t greatest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (!IsBetween(ByteAt(text, 1), least, greatest)) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (!IsBetween(ByteAt(text, i), 0x80, 0xBF)) return 0;
  }
  return bytes;
}

std::string ValidUtf8(std::string_view text, size_t limit_bytes) {
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

void AppendQuoted(std::string_view text, std::string& out) {
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
