// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "exporter/findings/words.h"
#include "proto/identity_variables.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::json;

// A report has six levels. More would only cost memory.
constexpr int kMostLevels = 16;
constexpr size_t kMostVariables = 256;  // of all processes of a job

// All texts as text that a terminal only shows.
Json Clean(const Json& json) {
  if (json.is_string()) return PrintablePath(json.get_ref<const std::string&>());
  Json clean = json;
  if (json.is_array()) {
    std::ranges::transform(json, clean.begin(), Clean);
  } else if (json.is_object()) {
    clean = Json::object();
    for (const auto& [name, value] : json.items()) clean[PrintablePath(name)] = Clean(value);
  }
  return clean;
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Point, time, value)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Job, labels, names, processes, trouble, waiting_gpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReportTraffic, comm_name, collective, ranks, operations,
                                   timed_operations, bytes, busy_seconds, least_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReportMeasure, name, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReportEvent, name, severity, text, labels, times, gpu_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReportFact, name, value, processes, on)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReportLoss, cause, operations)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, schema, source, job, from, to, gpu_seconds, nodes,
                                   knows_waiting, waiting_gpu_seconds, gpus, waiting, traffic,
                                   waited_for, events, facts, losses, step, measures, warnings)

void AddVariables(std::map<std::string, ProcessVariables> processes, FactTable& table) {
  const std::string all(kAllNcclVariables);
  std::erase_if(processes, [&](const auto& process) { return !process.second.contains(all); });
  std::set<std::string> names;
  for (const auto& [on, values] : processes) {
    for (const auto& [name, value] : values) {
      if (name != all && names.size() < kMostVariables) names.insert(name);
    }
  }
  bool is_whole = names.size() < kMostVariables;  // else some may be left out
  for (const auto& [on, values] : processes) {
    // A variable without a value here is not set if the number is that of all.
    const bool is_complete = std::strtoul(values.at(all).c_str(), nullptr, 10) + 1 == values.size();
    is_whole &= is_complete;
    for (const std::string& name : names) {
      const auto value = values.find(name);
      if (value != values.end() || is_complete)
        table[name][value == values.end() ? "" : value->second].push_back(on);
    }
  }
  const auto differs = [&](const std::string& name) { return table[name].size() > 1; };
  if (is_whole && std::ranges::any_of(names, differs)) return;
  for (const auto& [on, values] : processes) table[all][values.at(all)].push_back(on);
}

std::string ProcessText(const std::string& global_rank, const std::string& pid,
                        const std::string& pod, const std::string& container) {
  if (!global_rank.empty()) return "global rank " + global_rank;
  return "pid " + pid + (pod.empty() ? "" : " of " + pod) +
         (container.empty() ? "" : '/' + container);
}

std::vector<ReportFact> FactsOf(FactTable table) {
  std::vector<ReportFact> facts;
  for (auto& [name, values] : table) {
    std::vector<ReportFact> of_name;
    for (auto& [value, on] : values)
      of_name.push_back(
          {.name = name, .value = value, .processes = on.size(), .on = std::move(on)});
    std::ranges::stable_sort(of_name, std::ranges::greater(), &ReportFact::processes);
    of_name.front().on.clear();
    for (ReportFact& fact : of_name) {
      if (fact.on.size() > kMostListed) fact.on.resize(kMostListed);
      facts.push_back(std::move(fact));
    }
  }
  return facts;
}

std::string NameOf(const ReportTraffic& traffic) {
  constexpr size_t kIdDigits = 16;
  const std::string& name = traffic.comm_name;
  const bool is_id = name.empty() || (name.size() == kIdDigits &&
                                      name.find_first_not_of("0123456789abcdef") == name.npos);
  return traffic.collective + " of " + (is_id ? "communicators without a name" : name);
}

const ReportTraffic* RarestOf(const Report& report) {
  constexpr double kLongest = 30;  // seconds, as the longest step of the rules
  const ReportTraffic* rarest = nullptr;
  for (const ReportTraffic& row : report.traffic) {
    const auto count = [](const ReportTraffic& of) {
      return of.operations / static_cast<double>(std::max<uint64_t>(of.ranks, 1));
    };
    if (row.ranks > 0 && count(row) * kLongest > report.to - report.from &&
        (rarest == nullptr || count(row) < count(*rarest)))
      rarest = &row;
  }
  return rarest;
}

std::string JsonLine(const Json& json) {
  return Clean(json).dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string ReportJson(const Report& report) { return JsonLine(report); }

Report ReportIn(std::string_view json) {
  std::string name;
  const auto refuse = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (depth > kMostLevels) throw std::invalid_argument("it has too many levels");
    if (event == Json::parse_event_t::key) name = value.get<std::string>();
    const bool is_count = name == "processes" || name == "ranks" || name == "nodes";
    // The conversion of a fraction or of a negative number is undefined.
    if (is_count && value.is_number() && !value.is_number_unsigned())
      throw std::invalid_argument(name + " is no count");
    return true;
  };
  try {
    const Json read = Clean(Json::parse(json, refuse));
    const std::string schema = read.at("schema").get<std::string>();
    const size_t major = kReportSchema.find('.') + 1;
    if (schema.substr(0, major) != kReportSchema.substr(0, major))
      throw std::invalid_argument("its schema is " + schema);
    return read.get<Report>();
  } catch (const std::exception& wrong) {
    throw std::runtime_error("it is no report: " + PrintablePath(wrong.what()));
  }
}

std::string JobsJson(const std::vector<Job>& jobs, const std::vector<std::string>& warnings) {
  return JsonLine({{"warnings", warnings}, {"jobs", jobs}});
}

}  // namespace nccl_exporter::exporter
