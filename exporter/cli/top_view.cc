// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/top_view.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

using Kind = Key::Kind;
using Mode = TopView::Mode;

// Longer than any name in the table.
constexpr size_t kFilterLimitBytes = 64;

// As xterm sends them; the second form is that of the keypad in application mode.
constexpr std::array<std::pair<std::string_view, Kind>, 6> kSequences{{
    {"\x1b[A", Kind::kUp},
    {"\x1bOA", Kind::kUp},
    {"\x1b[B", Kind::kDown},
    {"\x1bOB", Kind::kDown},
    {"\x1b[5~", Kind::kPageUp},
    {"\x1b[6~", Kind::kPageDown},
}};

// Bytes of the control sequence that `typed` begins with; 1 where it begins with none.
size_t SequenceBytes(std::string_view typed) {
  if (typed.starts_with("\x1bO")) return std::min<size_t>(typed.size(), 3);
  if (!typed.starts_with("\x1b[")) return 1;
  const auto end = std::find_if(typed.begin() + 2, typed.end(),
                                [](char byte) { return byte >= 0x40 && byte <= 0x7E; });
  return static_cast<size_t>(end - typed.begin()) + (end == typed.end() ? 0 : 1);
}

void Type(const Key& key, TopView& view) {
  if (key.kind == Kind::kEnter) view.mode = Mode::kTable;
  if (key.kind == Kind::kEscape) {
    view.mode = Mode::kTable;
    view.filter.clear();
  }
  if (key.kind == Kind::kCharacter && view.filter.size() < kFilterLimitBytes)
    view.filter += key.character;
  if (key.kind != Kind::kBackspace) return;
  while (!view.filter.empty() && (static_cast<uint8_t>(view.filter.back()) & 0xC0) == 0x80)
    view.filter.pop_back();
  if (!view.filter.empty()) view.filter.pop_back();
}

void MoveMark(Kind kind, const TopPicture& shown, TopView& view) {
  const size_t last = shown.ranks - std::min<size_t>(shown.ranks, 1);
  view.marked = shown.marked;
  if (kind == Kind::kUp) view.marked -= std::min<size_t>(view.marked, 1);
  if (kind == Kind::kPageUp) view.marked -= std::min(view.marked, shown.page);
  if (kind == Kind::kDown) view.marked = std::min(view.marked + 1, last);
  if (kind == Kind::kPageDown) view.marked = std::min(view.marked + shown.page, last);
}

// A character of the table.
bool ApplyCharacter(char character, TopView& view) {
  switch (character) {
    case 'q':
    case 'Q':
      return false;
    case 'p':
      view.is_paused = !view.is_paused;
      break;
    case '?':
      view.mode = Mode::kHelp;
      break;
    case '/':
      view.mode = Mode::kTyping;
      break;
    case 's':
      view.sort = static_cast<RankSort>((static_cast<size_t>(view.sort) + 1) % kRankSorts.size());
      view.marked = 0;
      break;
    default:
      break;
  }
  return true;
}

}  // namespace

Key TakeKey(std::string& typed) {
  const std::string key = typed.substr(0, SequenceBytes(typed));
  typed.erase(0, key.size());
  if (key.size() > 1) {
    const auto* const row =
        std::ranges::find(kSequences, key, [](const auto& r) { return r.first; });
    return {.kind = row == kSequences.end() ? Kind::kNothing : row->second};
  }
  const auto byte = static_cast<uint8_t>(key[0]);
  if (byte == 0x1B) return {.kind = Kind::kEscape};
  if (byte == '\r' || byte == '\n') return {.kind = Kind::kEnter};
  if (byte == 0x7F || byte == '\b') return {.kind = Kind::kBackspace};
  if (byte < 0x20) return {};
  return {.kind = Kind::kCharacter, .character = key[0]};
}

bool Apply(const Key& key, const TopPicture& shown, TopView& view) {
  if (key.kind == Kind::kEnd) return false;
  if (key.kind == Kind::kNothing) return true;
  if (view.mode == Mode::kTyping) {
    Type(key, view);
    return true;
  }
  if (view.mode != Mode::kTable) {  // any key
    view.mode = Mode::kTable;
    return true;
  }
  if (key.kind == Kind::kEnter && shown.marked_id) {
    view.mode = Mode::kDetails;
    view.details = shown.marked_id;
  }
  if (key.kind == Kind::kEscape) view.filter.clear();
  if (key == Key{Kind::kCharacter, 'k'}) {
    MoveMark(Kind::kUp, shown, view);
  } else if (key == Key{Kind::kCharacter, 'j'}) {
    MoveMark(Kind::kDown, shown, view);
  } else if (key.kind == Kind::kCharacter) {
    return ApplyCharacter(key.character, view);
  } else {
    MoveMark(key.kind, shown, view);
  }
  return true;
}

}  // namespace nccl_exporter::exporter
