// SPDX-License-Identifier: Apache-2.0
// TopScreen(), the text of `nccl-exporter top`.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "exporter/cli/top_line.h"
#include "exporter/cli/top_view.h"
#include "exporter/findings/words.h"
#include "exporter/text/text_table.h"
#include "exporter/text/time_text.h"

namespace nccl_exporter::exporter {
namespace {

using Mode = TopView::Mode;

TopLine Head(const collector::NodeSnapshot& node, size_t communicators) {
  std::string text = fmt::format(
      "{}Z  {}  {}", TimeText(node.taken_realtime_ns).substr(0, 19),
      node.segments.live == 1 ? "1 process" : fmt::format("{} processes", node.segments.live),
      CountText(communicators, "communicator"));
  if (node.segments.unusable != 0)
    text += "  " + CountText(node.segments.unusable, "unusable segment");
  return {std::move(text), kTitleStyle};
}

std::string Joined(const std::vector<TopLine>& lines, const TopView& view) {
  std::string text;
  for (const TopLine& line : lines) {
    const bool has_style = view.has_colours && !line.style.empty();
    if (has_style) text += line.style;
    text += Cut(line.text, view.columns);
    if (has_style) text += kPlainStyle;
    text += '\n';
  }
  return text;
}

// A screen of `lines` with `last` at the bottom.
std::string Filled(std::vector<TopLine> lines, std::string last, const TopView& view) {
  lines.resize(std::max<size_t>(view.rows, 2) - 1);
  lines.push_back({std::move(last)});
  return Joined(lines, view);
}

std::string LastLine(const TopPicture& picture, const TopView& view) {
  if (view.mode == Mode::kTyping) return fmt::format("/{}_  Enter keeps, Esc ends", view.filter);
  const size_t first = picture.marked / picture.page * picture.page;
  std::string text = picture.ranks == 0 ? "no ranks"
                                        : fmt::format("ranks {}-{} of {}", first + 1,
                                                      std::min(first + picture.page, picture.ranks),
                                                      picture.ranks);
  if (!view.filter.empty()) text += fmt::format(" with '{}'", view.filter);
  if (view.is_paused) text += ", paused";
  return text + fmt::format("  q quit  ? help  s sort (by {})  / filter  Enter details",
                            RowIn(kRankSorts, view.sort).name);
}

std::string FoldedText(uint64_t folded) {
  return folded == 1 ? "1 communicator of one rank is idle"
                     : fmt::format("{} communicators of one rank are idle", folded);
}

std::vector<TopLine> Details(const RankViews& found, const collector::NodeSnapshot& node,
                             const Judgement& judgement, const TopView& view) {
  const auto rank = std::ranges::find_if(
      found.ranks, [&](const RankView& line) { return line.id() == view.details; });
  if (rank == found.ranks.end()) return {{"This rank is no longer on this node."}};
  std::vector<TopLine> lines = DetailLines(*rank, node, judgement, view.columns);
  if (!view.judged.empty()) lines.push_back({view.judged, kWaitingStyle});
  return lines;
}

// The lines of the table of collectives, if `room` is for it and the ranks: a third, and the lines
// that ranks do not need.
size_t CollectiveRoom(size_t collectives, size_t ranks, size_t room) {
  const size_t spare = room - std::min(room, ranks + 1);
  const size_t lines = std::min(collectives, std::max(room / 3, spare));
  return lines < 2 ? 0 : lines;  // a head alone says nothing
}

void Append(std::vector<TopLine> more, size_t count, std::vector<TopLine>& lines) {
  more.resize(std::min(count, more.size()));
  std::ranges::move(more, std::back_inserter(lines));
}

// The tables below `lines`, on a screen that has `view.rows`.
void AddPage(std::vector<TopLine> collectives, const RankViews& found, const TopView& view,
             TopPicture& picture, std::vector<TopLine>& lines) {
  std::vector<TopLine> table =
      RankLines(found.ranks, view.columns - std::min<size_t>(view.columns, 1));
  const size_t below = found.folded == 0 ? 0 : 1;
  const size_t room = view.rows - std::min(view.rows, lines.size() + 1);
  const size_t shown = CollectiveRoom(collectives.size(), table.size() + below, room);
  Append(std::move(collectives), shown, lines);
  if (shown != 0) lines.push_back({});
  const size_t used = lines.size() + 1 + 1 + below;  // head, last line
  picture.page = std::max<size_t>(view.rows - std::min(view.rows, used), 1);
  const size_t first = picture.marked / picture.page * picture.page;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i].text.insert(0, i == picture.marked + 1 ? ">" : " ");
    if (i == 0 || (i > first && i <= first + picture.page)) lines.push_back(std::move(table[i]));
  }
  if (below != 0) lines.push_back({' ' + FoldedText(found.folded), kWaitingStyle});
  picture.text = Filled(std::move(lines), LastLine(picture, view), view);
}

}  // namespace

TopPicture TopScreen(const collector::NodeSnapshot& node, const NodeHistory& history,
                     const Judgement& judgement, const TopView& view) {
  std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  // An order that stays.
  std::ranges::stable_sort(communicators, {}, [](const CommunicatorOnNode& c) { return c.key.id; });
  PutFoundFirst(judgement, communicators);
  RankViews found =
      RankViewsOf(communicators, node.taken_realtime_ns, history, judgement, view.sort);
  TopPicture picture;
  picture.marked = view.marked;
  if (view.mode == Mode::kHelp || view.mode == Mode::kDetails) {
    picture.text =
        Filled(view.mode == Mode::kHelp ? HelpLines() : Details(found, node, judgement, view),
               "any key: back", view);
    return picture;
  }
  Filter(view.filter, found.ranks);
  picture.ranks = found.ranks.size();
  picture.marked = std::min(view.marked, picture.ranks - std::min<size_t>(picture.ranks, 1));
  if (picture.ranks != 0) picture.marked_id = found.ranks[picture.marked].id();

  std::vector<TopLine> lines{Head(node, communicators.size())};
  const size_t all = std::numeric_limits<size_t>::max();
  if (!view.judged.empty()) lines.push_back({view.judged, kWaitingStyle});
  Append(FindingLines(judgement, node.taken_realtime_ns, view.columns), all, lines);
  lines.push_back({});
  std::vector<TopLine> collectives = CollectiveLines(communicators, history, view.columns);
  if (view.rows != 0) {
    AddPage(std::move(collectives), found, view, picture, lines);
    return picture;
  }
  Append(std::move(collectives), all, lines);
  lines.push_back({});
  Append(RankLines(found.ranks, view.columns), all, lines);
  if (found.folded != 0) lines.push_back({FoldedText(found.folded)});
  picture.text = Joined(lines, view);
  return picture;
}

}  // namespace nccl_exporter::exporter
