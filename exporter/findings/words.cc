// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "exporter/text/time_text.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

// Limits, so that one long name does not hide the rest of a sentence.
constexpr size_t kNameLimitBytes = 64;
constexpr size_t kPathLimitBytes = 512;

}  // namespace

std::string Printable(std::string_view text) { return ValidUtf8(text, kNameLimitBytes, "?"); }
std::string PrintablePath(std::string_view path) { return ValidUtf8(path, kPathLimitBytes, "?"); }

std::string JobText(const collector::ProcessSnapshot& process) {
  const std::string job = process.JobName();
  const std::string& name_space = process.Identity("POD_NAMESPACE");
  if (!job.empty()) {
    return "job " + Printable(job) +
           (name_space.empty() ? "" : " (namespace " + Printable(name_space) + ")");
  }
  if (!name_space.empty()) return "namespace " + Printable(name_space);
  return fmt::format("the job of user {}", process.uid);
}

std::string CommunicatorText(uint64_t id, std::string_view name) {
  return name.empty() ? fmt::format("{:08x}", id >> 32) : Printable(name);
}

std::string OperationText(const collector::InFlightOperation& operation) {
  const FunctionTraits& traits = TraitsOf(operation.function);
  if (!traits.is_point_to_point) return fmt::format("{} #{}", traits.name, operation.sequence);
  if (operation.peer < 0) return std::string(traits.name);
  return fmt::format("{} {} rank {}", traits.name,
                     operation.function == Function::kSend ? "to" : "from", operation.peer);
}

std::string ListText(size_t count, const std::function<std::string(size_t)>& name_of, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(count, most); ++i) text += (i == 0 ? "" : ", ") + name_of(i);
  if (count > most) text += fmt::format(" and {} more", count - most);
  return text;
}

bool HaveGlobalRanks(const std::vector<RankOnNode>& ranks) {
  return std::ranges::all_of(ranks, [](const RankOnNode& rank) {
    return rank.communicator->numbers.global_rank.has_value();
  });
}

std::string RanksText(const std::vector<RankOnNode>& ranks, bool are_global) {
  return (are_global ? "global rank " : "rank ") + ListText(ranks.size(), [&](size_t i) {
           const collector::CommunicatorSnapshot& here = *ranks[i].communicator;
           return are_global ? here.numbers.GlobalText() : std::to_string(here.rank);
         });
}

MissingRanks MissingOf(const std::vector<RankOnNode>& ranks) {
  const uint64_t all = ranks.front().communicator->ranks;
  std::set<uint64_t> here;
  for (const RankOnNode& rank : ranks) here.insert(rank.communicator->rank);
  here.erase(here.lower_bound(all), here.end());
  MissingRanks missing{.count = all - here.size(), .first = {}};
  for (uint64_t rank = 0; rank < all && missing.first.size() < kMostFoundRanks; ++rank) {
    if (!here.contains(rank)) missing.first.push_back(rank);
  }
  return missing;
}

std::string MissingText(const MissingRanks& missing) {
  return "rank " +
         ListText(missing.count, [&](size_t i) { return std::to_string(missing.first[i]); });
}

Finding FindingAbout(FindingKind kind, Severity severity, const collector::CommunicatorKey& key,
                     const RankOnNode& rank) {
  Finding finding;
  finding.kind = kind;
  finding.severity = severity;
  finding.communicator = key;
  finding.communicator_name = Printable(rank.communicator->name);
  finding.uid = key.uid;
  finding.job = JobText(*rank.process);
  return finding;
}

FoundRank FoundRankOf(const RankOnNode& rank, Standing standing, bool are_global) {
  const collector::CommunicatorSnapshot& here = *rank.communicator;
  FoundRank found{.standing = standing,
                  .rank = here.rank,
                  .global_rank = are_global ? here.numbers.GlobalText() : "",
                  .gpu_index = here.gpu_index,
                  .gpu_uuid = Printable(here.gpu_uuid),
                  .pid = rank.process->pid,
                  .host_name = Printable(rank.process->NodeName()),
                  .pod = Printable(rank.process->Identity("POD_NAME")),
                  .operation = {}};
  if (!here.completion_is_known || here.in_flight.empty()) return found;
  AddOperation(rank, here.in_flight.front(), found);
  return found;
}

void AddOperation(const RankOnNode& rank, const collector::InFlightOperation& operation,
                  FoundRank& found) {
  found.operation = OperationText(operation);
  // A peer has its number in the communicator, also where ranks have global ones.
  if (operation.peer >= 0)
    found.operation += " of " + CommunicatorText(rank.communicator->id, rank.communicator->name);
  found.since_realtime_ns = operation.start_realtime_ns;
}

std::string RankText(const FoundRank& rank, std::string_view communicator) {
  std::string text = rank.global_rank.empty()
                         ? fmt::format("rank {} of {}", rank.rank, communicator)
                         : "global rank " + rank.global_rank;
  std::string where;
  const auto add = [&](const std::string& part) { where += (where.empty() ? "" : ", ") + part; };
  if (rank.gpu_index >= 0) add(fmt::format("GPU {}", rank.gpu_index));
  if (rank.pid != 0) add(fmt::format("pid {}", rank.pid));
  if (!rank.host_name.empty()) add(rank.host_name);
  return where.empty() ? text : text + " (" + where + ")";
}

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds >= 7200) return fmt::format("{:.1f} h", seconds / 3600);
  if (seconds >= 120) return fmt::format("{:.0f} min", std::floor(seconds / 60));
  if (seconds >= 10) return fmt::format("{:.0f} s", std::floor(seconds));
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string AgeText(int64_t then_ns, int64_t now_ns) {
  if (then_ns == 0) return "-";
  return DurationText(static_cast<double>(std::max<int64_t>(now_ns - then_ns, 0)) / 1e9);
}

std::string ClockText(int64_t realtime_ns) {
  constexpr size_t kDay = sizeof("2023-11-14T") - 1, kClock = sizeof("22:13:20") - 1;
  const std::string text = TimeText(realtime_ns);
  return text.size() > kDay + kClock ? text.substr(kDay, kClock) + " UTC" : text;
}

std::string BytesText(uint64_t bytes) { return BytesText(static_cast<double>(bytes)); }

std::string BytesText(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = bytes;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string Capital(std::string_view text) {
  std::string capital(text);
  if (!capital.empty())
    capital[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(capital[0])));
  return capital;
}

std::string CountText(uint64_t count, std::string_view singular) {
  return fmt::format("{} {}{}", count, singular, count == 1 ? "" : "s");
}

}  // namespace nccl_exporter::exporter
