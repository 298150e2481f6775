// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/findings_from_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::json;

// An answer has five levels. More would only cost memory.
constexpr int kMostLevels = 16;

[[noreturn]] void Refuse(const char* key, const char* what) {
  throw std::invalid_argument("'" + std::string(key) + "' " + what);
}

const Json& Member(const Json& object, const char* key) {
  if (!object.is_object()) Refuse(key, "is not in an object");
  const auto found = object.find(key);
  if (found == object.end()) Refuse(key, "is missing");
  return *found;
}

std::string Text(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  if (!value.is_string()) Refuse(key, "is no text");
  return PrintablePath(value.get_ref<const std::string&>());  // no sentence is longer than paths
}

uint64_t Count(const Json& object, const char* key,
               uint64_t most = std::numeric_limits<uint64_t>::max()) {
  const Json& value = Member(object, key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > most) Refuse(key, "is no count");
  return value.get<uint64_t>();
}

// `absent` for null.
template <typename Number>
Number CountOr(const Json& object, const char* key, Number absent) {
  if (Member(object, key).is_null()) return absent;
  return static_cast<Number>(
      Count(object, key, static_cast<uint64_t>(std::numeric_limits<Number>::max())));
}

double Seconds(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  const double seconds = value.is_number() ? value.get<double>() : -1;
  if (!std::isfinite(seconds) || seconds < 0) Refuse(key, "is no number of seconds");
  return seconds;
}

// Null is 0.
int64_t TimeNs(const Json& object, const char* key) {
  constexpr double kMostSeconds = 9e9;  // the year 2255: nanoseconds have no room for more
  if (Member(object, key).is_null()) return 0;
  const double seconds = Seconds(object, key);
  if (seconds > kMostSeconds) Refuse(key, "is no time");
  return std::llround(seconds * 1e3) * 1000000;
}

const Json& List(const Json& object, const char* key, size_t most) {
  const Json& list = Member(object, key);
  if (!list.is_array()) Refuse(key, "is no list");
  if (list.size() > most) Refuse(key, "is too long");
  return list;
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
  for (const Json& rank : List(finding, key, kMostReceivedRanks)) {
    FoundRank found{.standing = Named(kStandings, rank, "standing"),
                    .rank = Count(rank, "rank"),
                    .global_rank = Text(rank, "global_rank"),
                    .gpu_index = CountOr(rank, "gpu", -1),
                    .gpu_uuid = Text(rank, "gpu_uuid"),
                    .pid = CountOr(rank, "pid", uint64_t{0}),
                    .host_name = Text(rank, "host"),
                    .pod = Text(rank, "pod"),
                    .behind = Count(rank, "behind"),
                    .operation = Text(rank, "operation"),
                    .since_realtime_ns = TimeNs(rank, "since")};
    if (found.standing != Standing::kCount) ranks.push_back(std::move(found));
  }
  return ranks;
}

// A daemon of another version may give the former name alone.
std::string JobName(const Json& finding) {
  return Text(finding, finding.contains("nccl_job") ? "nccl_job" : "slurm_job_id");
}

// The numbers and the job by which rows of this node belong to it.
std::optional<collector::CommunicatorKey> Communicator(const Json& finding) {
  if (Member(finding, "comm").is_null()) return std::nullopt;
  constexpr size_t kDigits = 16;
  const std::string id = Text(finding, "comm");
  collector::CommunicatorKey key{
      .ranks = CountOr(finding, "ranks", uint64_t{0}),
      .uid = Count(finding, "uid"),
      .job = JobName(finding),
      .name_space = Text(finding, "namespace")};
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), key.id, 16);
  if (error != std::errc() || end != id.data() + id.size() || id.size() != kDigits)
    Refuse("comm", "is no number of 16 digits");
  return key;
}

// How many ranks there are beyond those of the list; those of an unknown standing are among them.
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
  if (finding.severity == Severity::kCount) Refuse("severity", "is not known");
  if (!finding.communicator) {
    finding.job_name = JobName(from);
    finding.name_space = Text(from, "namespace");
  }
  finding.more_culprits = More(from, "culprits_count", finding.culprits);
  finding.more_waiting = More(from, "waiting_count", finding.waiting);
  for (const Json& line : List(from, "evidence", kMostReceivedEvidence))
    finding.evidence.emplace_back(Text(line, "name"), Text(line, "value"));
  return finding;
}

Judgement JudgementOf(const Json& answer) {
  const Json& looked_at = Member(answer, "looked_at");
  Judgement judgement{.findings = {},
                      .left_out = Count(looked_at, "findings_left_out"),
                      .seconds = Seconds(looked_at, "seconds"),
                      .communicators = Count(looked_at, "communicators"),
                      .across_nodes = looked_at.contains("communicators_across_nodes")
                                          ? Count(looked_at, "communicators_across_nodes")
                                          : 0,  // of a daemon before it
                      .compared_operations = Count(looked_at, "compared_operations"),
                      .learning_seconds = Seconds(looked_at, "learning_seconds"),
                      .not_remembered = Count(looked_at, "not_remembered")};
  for (const Json& finding : List(answer, "findings", kMostReceivedFindings))
    judgement.findings.push_back(FindingOf(finding));
  return judgement;
}

WatchedDirectories WatchesOf(const Json& answer) {
  const Json& watches = Member(answer, "watches");
  WatchedDirectories watched{.boot_id = Text(watches, "boot_id"), .ids = {}};
  for (const Json& id : List(watches, "directories", kMostReceivedDirectories)) {
    if (!id.is_string()) Refuse("directories", "is no list of texts");
    watched.ids.push_back(id.get<std::string>());
  }
  return watched;
}

}  // namespace

std::optional<ReceivedFindings> FindingsFromJson(std::string_view answer, std::string& fault) {
  try {
    if (answer.size() > kMostAnswerBytes) throw std::invalid_argument("it is too long");
    const Json json = Json::parse(
        answer, [](int level, Json::parse_event_t, Json&) { return level < kMostLevels; }, false);
    if (json.is_discarded()) throw std::invalid_argument("it is no JSON");
    return ReceivedFindings{.judgement = JudgementOf(json),
                            .start_realtime_ns = TimeNs(Member(json, "exporter"), "start"),
                            .watches = WatchesOf(json)};
  } catch (const std::invalid_argument& wrong) {
    fault = wrong.what();
    return std::nullopt;
  }
}

}  // namespace nccl_exporter::exporter
