// SPDX-License-Identifier: Apache-2.0
#include "exporter/text/text_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kGap = "  ";
constexpr size_t kLeastFirstColumn = 4;  // the beginning of a name
constexpr size_t kLeastLastColumn = 20;  // a few words

bool BeginsCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

// Bytes of the first `characters` of `text`.
size_t BytesOf(std::string_view text, size_t characters) {
  size_t bytes = 0;
  for (size_t begun = 0; bytes < text.size(); ++bytes) {
    if (BeginsCharacter(text[bytes]) && ++begun > characters) break;
  }
  return bytes;
}

size_t LineWidth(const std::vector<size_t>& widths) {
  const size_t shown = widths.size() - static_cast<size_t>(std::ranges::count(widths, size_t{0}));
  return std::accumulate(widths.begin(), widths.end(), size_t{0}) +
         (shown == 0 ? 0 : shown - 1) * kGap.size();
}

}  // namespace

size_t Width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, BeginsCharacter));
}

std::string Cut(std::string_view text, size_t columns) {
  if (columns == 0 || Width(text) <= columns) return std::string(text);
  return std::string(text.substr(0, BytesOf(text, columns - 1))) + "…";
}

std::vector<std::string> Wrapped(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  while (columns != 0 && Width(text) > columns) {
    const size_t most = BytesOf(text, columns);
    const size_t space = text.substr(0, most + 1).rfind(' ');
    const bool has_space = space != std::string_view::npos && space != 0;
    lines.emplace_back(text.substr(0, has_space ? space : most));
    text.remove_prefix(has_space ? space + 1 : most);
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

TextTable::TextTable(std::vector<TextColumn> columns) : columns_(std::move(columns)) {
  std::vector<std::string> head;
  for (const TextColumn& column : columns_) head.emplace_back(column.head);
  rows_.push_back(std::move(head));
}

void TextTable::Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::vector<size_t> TextTable::Widths(size_t columns) const {
  std::vector<size_t> widths(columns_.size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  if (columns == 0) return widths;
  while (LineWidth(widths) > columns) {
    size_t next = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (widths[i] == 0 || columns_[i].leave_out == 0) continue;
      if (next == columns_.size() || columns_[i].leave_out < columns_[next].leave_out) next = i;
    }
    if (next == columns_.size()) break;
    widths[next] = 0;
  }
  const auto narrow = [&](size_t& width, size_t least) {
    const size_t most = LineWidth(widths);
    if (most > columns) width -= std::min(most - columns, width - std::min(width, least));
  };
  if (columns_.back().is_text && widths.size() > 1) narrow(widths.back(), kLeastLastColumn);
  narrow(widths.front(), kLeastFirstColumn);
  return widths;
}

std::vector<std::string> TextTable::Lines(size_t columns) const {
  const std::vector<size_t> widths = Widths(columns);
  std::vector<std::string> lines;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      if (widths[i] == 0) continue;
      const std::string cell = Cut(row[i], widths[i]);
      const std::string pad(widths[i] - Width(cell), ' ');
      line += (columns_[i].is_text ? cell + pad : pad + cell) + std::string(kGap);
    }
    const size_t indent = Width(line);
    const bool is_text = columns_.back().is_text;
    for (const std::string& part : Wrapped(widths.back() == 0 ? "" : row.back(), widths.back())) {
      line.append(is_text ? 0 : widths.back() - Width(part), ' ');
      line += part;
      lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
      line.assign(indent, ' ');
    }
  }
  return lines;
}

}  // namespace nccl_exporter::exporter
