// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exporter/findings/findings_json.h"
#include "exporter/findings/words.h"
#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::json;

// An answer has five levels. More would only cost memory.
constexpr int kMostLevels = 16;

// The functions below throw where the answer is not as docs/api.md has it.

std::string Text(const Json& object, const char* key) {
  // No sentence is longer than paths.
  return PrintablePath(object.at(key).get_ref<const std::string&>());
}

template <typename Number = uint64_t>
Number Count(const Json& object, const char* key, Number of_null = 0) {
  const Json& value = object.at(key);
  if (value.is_null()) return of_null;
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<Number>::max()))
    throw std::invalid_argument(std::string("'") + key + "' is no count");
  return static_cast<Number>(value.get<uint64_t>());
}

// Null is 0.
double Seconds(const Json& object, const char* key) {
  constexpr double kMost = 9e9;  // the year 2255: nanoseconds have no room for more
  const Json& value = object.at(key);
  const double seconds = value.is_null() ? 0 : value.get<double>();
  if (!(seconds >= 0 && seconds <= kMost))
    throw std::invalid_argument(std::string("'") + key + "' is no number of seconds");
  return seconds;
}

int64_t TimeNs(const Json& object, const char* key) {
  return std::llround(Seconds(object, key) * 1e3) * 1000000;
}

// kCount for a name that is not known.
template <typename Id>
Id Named(const CodeTable<Id>& rows, const Json& object, const char* key) {
  const std::string name = Text(object, key);
  const auto row = std::ranges::find(rows, name, &CodeRow<Id>::name);
  return row == rows.end() ? Id::kCount : row->id;
}

std::vector<FoundRank> Ranks(const Json& finding, const char* key) {
  std::vector<FoundRank> ranks;
  for (const Json& rank : finding.at(key)) {
    FoundRank found{.standing = Named(kStandings, rank, "standing"),
                    .rank = Count(rank, "rank"),
                    .global_rank = Text(rank, "global_rank"),
                    .gpu_index = Count<int32_t>(rank, "gpu", -1),
                    .gpu_uuid = Text(rank, "gpu_uuid"),
                    .pid = Count(rank, "pid"),
                    .host_name = Text(rank, "host"),
                    .pod = Text(rank, "pod"),
                    .behind = Count(rank, "behind"),
                    .operation = Text(rank, "operation"),
                    .since_realtime_ns = TimeNs(rank, "since")};
    if (found.standing != Standing::kCount) ranks.push_back(std::move(found));
  }
  return ranks;
}

// The numbers and the job by which rows of this node belong to it.
std::optional<collector::CommunicatorKey> Communicator(const Json& finding) {
  if (finding.at("comm").is_null()) return std::nullopt;
  constexpr size_t kDigits = 16;
  const std::string id = Text(finding, "comm");
  const std::optional<uint64_t> number = NumberIn<uint64_t>(id, 16);
  if (!number || id.size() != kDigits)
    throw std::invalid_argument("'comm' is no number of 16 digits");
  return collector::CommunicatorKey{.id = *number,
                                    .ranks = Count(finding, "ranks"),
                                    .uid = Count(finding, "uid"),
                                    .job = Text(finding, "nccl_job"),
                                    .name_space = Text(finding, "namespace")};
}

// The number of ranks beyond those of the list; those of an unknown standing are among them.
uint64_t More(const Json& finding, const char* count, const std::vector<FoundRank>& listed) {
  return std::max<uint64_t>(Count(finding, count), listed.size()) - listed.size();
}

Finding FindingOf(const Json& from) {
  Finding finding{.kind = Named(kFindingKinds, from, "kind"),
                  .severity = Named(kSeverities, from, "severity"),
                  .communicator = Communicator(from),
                  .communicator_name = Text(from, "comm_name"),
                  .uid = Count(from, "uid"),
                  .job = Text(from, "job"),
                  .job_name = "",
                  .name_space = "",
                  .culprits = Ranks(from, "culprits"),
                  .waiting = Ranks(from, "waiting"),
                  .since_realtime_ns = TimeNs(from, "since"),
                  .headline = Text(from, "headline"),
                  .cost = Text(from, "cost"),
                  .evidence = {},
                  .next = Text(from, "next"),
                  .runbook = Text(from, "runbook")};
  if (finding.severity == Severity::kCount) throw std::invalid_argument("'severity' is not known");
  if (!finding.communicator) {
    finding.job_name = Text(from, "nccl_job");
    finding.name_space = Text(from, "namespace");
  }
  finding.more_culprits = More(from, "culprits_count", finding.culprits);
  finding.more_waiting = More(from, "waiting_count", finding.waiting);
  for (const Json& line : from.at("evidence"))
    finding.evidence.emplace_back(Text(line, "name"), Text(line, "value"));
  // Daemons from before schema 1.0 have none of these.
  if (from.contains("id")) finding.id = Text(from, "id");
  const Json numbers = from.value("numbers", Json::object());
  for (const auto& [name, number] : numbers.items())
    finding.numbers.emplace_back(PrintablePath(name), number.get<double>());
  const Json labels = from.value("labels", Json::object());
  for (const auto& [name, value] : labels.items())
    finding.labels.emplace_back(PrintablePath(name), PrintablePath(value.get<std::string>()));
  for (const Json& line : from.value("collect", Json::array()))
    finding.collect.emplace_back(Text(line, "what"), Text(line, "command"));
  return finding;
}

Judgement JudgementOf(const Json& answer) {
  const Json& looked_at = answer.at("looked_at");
  Judgement judgement{.findings = {},
                      .left_out = Count(looked_at, "findings_left_out"),
                      .seconds = Seconds(looked_at, "seconds"),
                      .communicators = Count(looked_at, "communicators"),
                      .across_nodes = Count(looked_at, "communicators_across_nodes"),
                      .compared_operations = Count(looked_at, "compared_operations"),
                      .learning_seconds = Seconds(looked_at, "learning_seconds"),
                      .not_remembered = Count(looked_at, "not_remembered")};
  for (const Json& finding : answer.at("findings"))
    judgement.findings.push_back(FindingOf(finding));
  return judgement;
}

}  // namespace

std::optional<ReceivedFindings> FindingsFromJson(std::string_view answer, std::string& fault) {
  try {
    if (answer.size() > kMostAnswerBytes) throw std::invalid_argument("it is too long");
    const Json json = Json::parse(
        answer, [](int level, Json::parse_event_t, Json&) { return level < kMostLevels; }, false);
    if (json.is_discarded()) throw std::invalid_argument("it is no JSON");
    const Json& watches = json.at("watches");
    return ReceivedFindings{
        .judgement = JudgementOf(json),
        .start_realtime_ns = TimeNs(json.at("exporter"), "start"),
        .watches = {.boot_id = Text(watches, "boot_id"),
                    .ids = watches.at("directories").get<std::vector<std::string>>()}};
  } catch (const std::exception& wrong) {
    fault = wrong.what();
    return std::nullopt;
  }
}

}  // namespace nccl_exporter::exporter
