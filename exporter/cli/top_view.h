// SPDX-License-Identifier: Apache-2.0
// TopView, the choices of the user of `nccl-exporter top`, and the keys that change them. Pure
// functions, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "exporter/findings/rank_view.h"

namespace nccl_exporter::exporter {

struct Key {
  enum class Kind : uint8_t {
    kNothing,  // no key, or one without a meaning
    kEnd,      // a signal, or the end of the input
    kUp,
    kDown,
    kPageUp,
    kPageDown,
    kEnter,
    kEscape,
    kBackspace,
    kCharacter,
  };
  Kind kind = Kind::kNothing;
  char character = 0;  // of kCharacter: a byte of UTF-8

  bool operator==(const Key&) const = default;
};

// Takes the first key from bytes that a terminal sent: a byte, or a control sequence of xterm
// (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html). Other sequences are taken whole and
// are kNothing. One that arrives in two parts is read as two keys. Not for an empty text.
Key TakeKey(std::string& typed);

// The choices of the user. Apply() changes it, TopScreen() reads it; the size of the window is set
// before each screen.
struct TopView {
  enum class Mode : uint8_t { kTable, kTyping, kDetails, kHelp };

  size_t columns = 0;  // 0: no limit
  size_t rows = 0;     // 0: no limit, and no keys
  RankSort sort = RankSort::kRank;
  bool has_colours = false;
  bool is_paused = false;
  Mode mode = Mode::kTable;
  std::string filter = {};             // at most 64 bytes, see Filter()
  std::string judged = {};             // whose findings they are, in one line; empty: left out
  size_t marked = 0;                   // row of the table of ranks
  std::optional<RankId> details = {};  // of this one, in that mode
};

// A screen, and what keys have to know about it.
struct TopPicture {
  std::string text = {};  // at most TopView::rows lines, each ended by a line feed
  size_t ranks = 0;       // after the filter
  size_t page = 1;        // ranks on a screen
  size_t marked = 0;      // as TopView::marked, and below `ranks`
  std::optional<RankId> marked_id = {};
};

// Changes the view as the key asks. `shown` is the picture on the screen, since a key means what is
// seen. In kTyping all characters belong to the filter; in kDetails and kHelp any key leads back.
// False if the key ends `top`.
bool Apply(const Key& key, const TopPicture& shown, TopView& view);

// Findings first, then collectives, then ranks with culprits first. Collectives have a third of the
// room that findings leave, and what the ranks do not need; the page of ranks is that of the marked
// one. A mark beyond the last rank is moved to it. No line is wider than `view.columns`. Control
// characters in text of other processes are replaced, because a terminal would execute them.
TopPicture TopScreen(const collector::NodeSnapshot& node, const NodeHistory& history,
                     const Judgement& judgement, const TopView& view);

}  // namespace nccl_exporter::exporter
