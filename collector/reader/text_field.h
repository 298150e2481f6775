// SPDX-License-Identifier: Apache-2.0
// Text fields of a segment: a fixed size, ended by a NUL or by the end of the field, unchecked so far. Pure functions,
// for any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nccl_exporter {

// Length of the well-formed UTF-8 character that `text` begins with, or 0 if it begins with none. `text` is not empty.
// Ill-formed are: continuation bytes without a lead, truncated characters, overlong forms, surrogates and values above
// U+10FFFF (Unicode 15, table 3-7).
inline size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t greatest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return byte(1) >= least && byte(1) <= greatest ? length : 0;
}

// The field's text as valid UTF-8. Each ill-formed byte becomes a '?', because one such byte in a label value would
// make the whole scrape unreadable.
inline std::string TextOf(std::span<const char> field) {
  std::string_view rest(field.data(), static_cast<size_t>(std::ranges::find(field, '\0') - field.begin()));
  std::string text;
  while (!rest.empty()) {
    const size_t length = CharacterLength(rest);
    if (length == 0) {
      text += '?';
    } else {
      text += rest.substr(0, length);
    }
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

}  // namespace nccl_exporter
