// SPDX-License-Identifier: Apache-2.0
#include "collector/reader/text_field.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "proto/utf8.h"

namespace nccl_exporter {

std::string TextOf(std::span<const char> field) {
  std::string_view rest(field.data(), static_cast<size_t>(std::ranges::find(field, '\0') - field.begin()));
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

}  // namespace nccl_exporter
