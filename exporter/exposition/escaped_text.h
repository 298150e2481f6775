// SPDX-License-Identifier: Apache-2.0
// Escaping that both text formats share.
#pragma once

#include <string>
#include <string_view>

namespace nccl_exporter {

// Appends `text` as both formats write it in HELP lines and label values: backslash and line feed escaped, and double
// quotes too where `escape_quotes`.
void AppendEscaped(std::string_view text, bool escape_quotes, std::string& out);

}  // namespace nccl_exporter
