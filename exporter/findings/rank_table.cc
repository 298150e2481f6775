// SPDX-License-Identifier: Apache-2.0
// RankTable(), the rows of ranks as `top` and `inflight` print them.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "exporter/findings/rank_view.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

struct Column {
  TextColumn head;
  bool is_of_top = true;
  bool is_of_in_flight = true;
};
constexpr size_t kJob = 1, kUser = 2, kGlobal = 4;
constexpr std::array<Column, 19> kColumns{{{{"COMMUNICATOR", true}, true, false},
                                           {{"JOB", true, 10}, true, false},
                                           {{"USER", false, 9}, true, false},
                                           {{"RANK"}},
                                           {{"GLOBAL", false, 8}},
                                           {{"GPU", false, 7}},
                                           {{"PID", false, 3}},
                                           {{"STATE", true, 6}},
                                           {{"STARTED", false, 1}},
                                           {{"BEHIND", false, 5}},
                                           {{"COMPLETED", false, 1}, false, true},
                                           {{"IN FLIGHT", false, 2}},
                                           {{"OLDEST", true, 4}},
                                           {{"FOR"}, true, false},
                                           {{"FOR"}, false, true},
                                           {{"SINCE UTC"}, false, true},
                                           {{"SIZE"}, false, true},
                                           {{"LAST TO ENTER"}, true, false},
                                           {{"LATE BY"}, true, false}}};

// In the order of the columns.
std::array<std::string, kColumns.size()> CellsOf(const RankView& view, int64_t now_ns) {
  const collector::CommunicatorSnapshot& here = *view.rank->communicator;
  const bool is_known = here.completion_is_known;
  const collector::InFlightOperation* const oldest =
      is_known && !here.in_flight.empty() ? &here.in_flight.front() : nullptr;
  const int64_t since_ns =
      oldest == nullptr ? here.last_progress_realtime_ns : oldest->start_realtime_ns;
  const std::string clock = ClockText(since_ns),
                    global = view.rank->communicator->numbers.GlobalText();
  const JobKey job = JobKeyOf(view.of->key);
  const std::string& name = job.job.empty() ? job.name_space : job.job;
  return {view.communicator,
          name.empty() ? "-" : Printable(name),
          std::to_string(job.uid),
          std::to_string(here.rank),
          global.empty() ? "-" : global,
          here.gpu_index < 0 ? "-" : std::to_string(here.gpu_index),
          std::to_string(view.rank->process->pid),
          view.state,
          std::to_string(here.started_sequence),
          view.behind == 0 ? "-" : std::to_string(view.behind),
          is_known ? std::to_string(here.completed_sequence) : "?",
          is_known ? std::to_string(here.in_flight.size()) : "?",
          oldest != nullptr ? OperationText(*oldest)
          : is_known        ? "idle"
                            : "not seen",
          view.age_seconds < 0 ? "-" : DurationText(view.age_seconds),
          AgeText(since_ns, now_ns),
          since_ns == 0 ? "-" : clock.substr(0, clock.find(' ')),
          oldest == nullptr ? "-" : BytesText(oldest->bytes),
          view.LastText(),
          view.LateText()};
}

bool HasOtherNumber(const RankOnNode& rank) {
  const std::string global = rank.communicator->numbers.GlobalText();
  return !global.empty() && global != std::to_string(rank.communicator->rank);
}

}  // namespace

TextTable RankTable(const std::vector<RankView>& ranks, RankColumns columns, int64_t now_ns) {
  const bool has_global =
      std::ranges::any_of(ranks, [](const RankView& view) { return HasOtherNumber(*view.rank); });
  const bool has_jobs = std::ranges::any_of(ranks, [&](const RankView& view) {
    return JobKeyOf(view.of->key) != JobKeyOf(ranks.front().of->key);
  });
  std::vector<size_t> shown;
  std::vector<TextColumn> heads;
  for (size_t i = 0; i < kColumns.size(); ++i) {
    const bool is_wanted =
        columns == RankColumns::kTop ? kColumns[i].is_of_top : kColumns[i].is_of_in_flight;
    const bool says_nothing =
        (i == kGlobal && !has_global) || ((i == kJob || i == kUser) && !has_jobs);
    if (!is_wanted || says_nothing) continue;
    shown.push_back(i);
    heads.push_back(kColumns[i].head);
  }
  TextTable table(std::move(heads));
  for (const RankView& view : ranks) {
    const auto texts = CellsOf(view, now_ns);
    std::vector<std::string> cells;
    for (const size_t i : shown) cells.push_back(texts[i]);
    table.Add(std::move(cells));
  }
  return table;
}

bool HaveOtherNumbers(const std::vector<RankOnNode>& ranks) {
  return HaveGlobalRanks(ranks) && std::ranges::any_of(ranks, HasOtherNumber);
}

}  // namespace nccl_exporter::exporter
