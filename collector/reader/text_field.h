// SPDX-License-Identifier: Apache-2.0
// Text fields of a segment: a fixed size, ended by a NUL or by the end of the field, unchecked so
// far. Pure functions, for any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "proto/utf8.h"

namespace nccl_exporter::collector {

// The field's text as valid UTF-8. Each ill-formed byte becomes a '?', because one such byte in a
// label value would make the whole scrape unreadable.
inline std::string TextOf(std::span<const char> field) {
  std::string_view rest(field.data(),
                        static_cast<size_t>(std::ranges::find(field, '\0') - field.begin()));
  std::string text;
  while (!rest.empty()) {
    const size_t length = CharacterBytes(rest);
    if (length == 0) {
      text += '?';
    } else {
      text += rest.substr(0, length);
    }
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

}  // namespace nccl_exporter::collector
