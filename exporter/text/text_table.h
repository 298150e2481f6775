// SPDX-License-Identifier: Apache-2.0
// Text for terminals of limited width: tables that leave out columns in a named order, and wrapped
// sentences. Pure functions of UTF-8, for any thread. Widths are characters, as terminals without
// double width show them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_exporter::exporter {

// Characters of well-formed UTF-8. Control sequences would count as characters: styles are added
// after cutting.
size_t Width(std::string_view text);

// Ends in an ellipsis where it is cut, which is the last of the columns. 0 columns: no limit, here
// and below.
std::string Cut(std::string_view text, size_t columns);

// Lines between words; a word that is longer than a line is broken. At least one line, which is
// empty for an empty text.
std::vector<std::string> Wrapped(std::string_view text, size_t columns);

struct TextColumn {
  std::string_view head;
  bool is_text = false;  // at the left
  // The lowest number is left out first where there is no room; 0: never.
  uint8_t leave_out = 0;
};

class TextTable {
 public:
  explicit TextTable(std::vector<TextColumn> columns);

  // As many cells as there are columns; with fewer, Lines() reads beyond them.
  void Add(std::vector<std::string> cells);

  // The head and each row, without blanks at the end. Columns are two blanks apart and as wide as
  // their widest cell. Where the columns that are never left out have no room, the last one is
  // wrapped if it is text, to 20 characters at least, and then the first one is cut, to four at
  // least. So lines may still be longer than `columns`.
  std::vector<std::string> Lines(size_t columns) const;

 private:
  std::vector<size_t> Widths(size_t columns) const;  // 0: left out

  const std::vector<TextColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace nccl_exporter::exporter
