// SPDX-License-Identifier: Apache-2.0
// Three characters have an escape, everything else stands for itself.
#include "exporter/exposition/escaped_text.h"

namespace nccl_exporter {

void AppendEscaped(std::string_view text, bool escape_quotes, std::string& out) {
  for (const char character : text) {
    if (character == '\\') {
      out += "\\\\";
    } else if (character == '\n') {
      out += "\\n";
    } else if (character == '"' && escape_quotes) {
      out += "\\\"";
    } else {
      out += character;
    }
  }
}

}  // namespace nccl_exporter
