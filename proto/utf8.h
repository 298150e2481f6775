// SPDX-License-Identifier: Apache-2.0
// UTF-8 by the table of well-formed byte sequences (Unicode 15, table 3-7): what text in a snapshot
// and in an answer is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nccl_exporter {

// Bytes of the well-formed character that `text` begins with; 0 if it begins with none. NUL counts
// as ill-formed: parsers of exposition text take it for the end.
constexpr size_t CharacterBytes(std::string_view text) {
  const auto byte_at = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto is_between = [](uint8_t byte, uint8_t least, uint8_t greatest) {
    return least <= byte && byte <= greatest;
  };
  const uint8_t lead = byte_at(0);
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  if (!is_between(lead, 0xC2, 0xF4)) return 0;
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and everything above U+10FFFF.
  const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t greatest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (!is_between(byte_at(1), least, greatest)) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (!is_between(byte_at(i), 0x80, 0xBF)) return 0;
  }
  return bytes;
}

}  // namespace nccl_exporter
