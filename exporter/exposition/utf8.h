// SPDX-License-Identifier: Apache-2.0
// Text of other processes made fit to print: label values, logs and dumps hold nothing but valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nccl_exporter {

// What stands for each byte that is no part of a character.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// `text` as valid UTF-8 of at most `limit_bytes`, cut between characters.
std::string ValidUtf8(std::string_view text, size_t limit_bytes);

// Appends `text` in double quotes, escaped as JSON (and logfmt) wants it.
void AppendQuoted(std::string_view text, std::string& out);

}  // namespace nccl_exporter
