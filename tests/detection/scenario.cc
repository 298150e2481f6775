// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/scenario.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "simulator/workload/hash_random.h"

namespace nccl_exporter::detection {
namespace {

constexpr int kNodes = 4;
constexpr int kRanksPerNode = 8;
constexpr double kSeconds = 60;

struct Victims {
  Victims(uint64_t seed, int nodes, int ranks_per_node) {
    const auto ranks = static_cast<uint64_t>(nodes * ranks_per_node);
    rank = static_cast<int>(sim::HashRandom(seed, 1) % ranks);
    node = rank / ranks_per_node;
    const auto distance =
        1 + sim::HashRandom(seed, 2) % static_cast<uint64_t>(std::max(1, nodes - 1));
    other_node = (node + static_cast<int>(distance)) % nodes;
    other_rank =
        other_node * ranks_per_node + static_cast<int>(sim::HashRandom(seed, 3)) % ranks_per_node;
    other_rank = std::max(other_rank, other_node * ranks_per_node);
  }

  std::string Fill(std::string text) const {
    const std::pair<const char*, int> names[] = {
        {"%v", rank}, {"%n", node}, {"%w", other_rank}, {"%m", other_node}};
    for (const auto& [name, number] : names) {
      for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;)
        text.replace(at, 2, std::to_string(number));
    }
    return text;
  }
  // A number, or the name of a victim.
  int Number(const nlohmann::json& value) const {
    return value.is_string() ? std::stoi(Fill(value.get<std::string>())) : value.get<int>();
  }

  int rank, node, other_rank, other_node;
};

void AllowOnly(const nlohmann::json& object, const std::set<std::string>& keys) {
  for (const auto& [key, value] : object.items()) {
    if (!keys.contains(key)) throw std::runtime_error("unknown key " + key);
  }
}

Job ReadJob(const nlohmann::json& file, const nlohmann::json& part, double seconds,
            const Victims& victims) {
  const auto setting = [&](const char* key, auto standard) {
    return part.value(key, file.value(key, standard));
  };
  Job job{.name = part.value("name", ""),
          .from = part.value("from", 0.0),
          .until = part.value("until", seconds),
          .nodes = setting("nodes", kNodes),
          .ranks_per_node = setting("ranks_per_node", kRanksPerNode)};
  job.options = {"--layout",         setting("layout", std::string("dp")),
                 "--nodes",          std::to_string(job.nodes),
                 "--ranks-per-node", std::to_string(job.ranks_per_node)};
  if (!job.name.empty()) {
    const std::string variables[] = {"NCCL_EXPORTER_JOB=" + job.name, "POD_NAMESPACE=research",
                                     "POD_NAME=" + job.name + "-%n-%l", "CONTAINER_NAME=main"};
    for (const std::string& variable : variables)
      job.options.insert(job.options.end(), {"--env", variable});
  }
  for (const nlohmann::json* from : {&file, &part}) {
    for (const auto& option : from->value("options", nlohmann::json::array()))
      job.options.push_back(option);
    for (const auto& incident : from->value("incidents", nlohmann::json::array())) {
      job.options.insert(job.options.end(), {"--incident", victims.Fill(incident)});
    }
    if (&part == &file) break;
  }
  return job;
}

Action ReadAction(const nlohmann::json& json, const Victims& victims) {
  AllowOnly(json, {"at", "do", "node", "seconds"});
  const std::string name = json.at("do");
  Action action{.at = json.at("at"),
                .node = json.contains("node") ? victims.Number(json["node"]) : 0};
  action.seconds = json.value("seconds", 0.0);
  if (name == "restart-daemon") {
    action.deed = Deed::kRestartDaemon;
  } else if (name == "hold-daemon") {
    action.deed = Deed::kHoldDaemon;
  } else if (name == "restart-prometheus") {
    action.deed = Deed::kRestartPrometheus;
  } else {
    throw std::runtime_error("unknown deed " + name);
  }
  return action;
}

Expectation ReadExpectation(const nlohmann::json& json, const Victims& victims) {
  AllowOnly(json,
            {"alert", "name", "job", "severity", "rank", "ranks", "node", "page", "from", "to"});
  Expectation expectation{.alert = json.at("alert"),
                          .name = json.value("name", ""),
                          .job = json.value("job", ""),
                          .severity = json.value("severity", ""),
                          .rank = json.contains("rank") ? victims.Number(json["rank"]) : -1,
                          .ranks = json.value("ranks", 1),
                          .node = json.contains("node") ? victims.Number(json["node"]) : -1,
                          .is_on_page = json.value("page", true),
                          .from = json.at("from")};
  if (json.contains("to")) expectation.to = json["to"].get<double>();
  return expectation;
}

Scenario Read(const nlohmann::json& file, uint64_t seed) {
  AllowOnly(file, {"says", "seconds", "layout", "nodes", "ranks_per_node", "options", "incidents",
                   "jobs", "actions", "expect", "tolerate"});
  Scenario scenario{
      .name = "", .says = file.at("says"), .seconds = file.value("seconds", kSeconds)};
  const Victims victims(seed, file.value("nodes", kNodes),
                        file.value("ranks_per_node", kRanksPerNode));
  if (file.contains("jobs")) {
    for (const auto& part : file["jobs"]) {
      AllowOnly(part,
                {"name", "from", "until", "layout", "nodes", "ranks_per_node", "options",
                 "incidents"});
      scenario.jobs.push_back(ReadJob(file, part, scenario.seconds, victims));
    }
  } else {
    scenario.jobs.push_back(ReadJob(file, file, scenario.seconds, victims));
    scenario.jobs.back().from = 0;
  }
  for (const auto& action : file.value("actions", nlohmann::json::array())) {
    scenario.actions.push_back(ReadAction(action, victims));
  }
  for (const auto& expected : file.value("expect", nlohmann::json::array()))
    scenario.expected.push_back(ReadExpectation(expected, victims));
  for (const auto& tolerated : file.value("tolerate", nlohmann::json::array()))
    scenario.tolerated.push_back(ReadExpectation(tolerated, victims));
  if (scenario.expected.empty() && !scenario.tolerated.empty())
    throw std::runtime_error("nothing is expected, so nothing can be tolerated");
  return scenario;
}

}  // namespace

int Scenario::nodes() const {
  int most = 0;
  for (const Job& job : jobs) most = std::max(most, job.nodes);
  return most;
}

Scenario ReadScenario(const std::string& path, uint64_t seed) {
  try {
    Scenario scenario = Read(nlohmann::json::parse(std::ifstream(path)), seed);
    scenario.name = std::filesystem::path(path).stem();
    for (Job& job : scenario.jobs)
      job.options.insert(job.options.end(), {"--seed", std::to_string(seed)});
    return scenario;
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

std::vector<std::string> ScenarioFiles(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace nccl_exporter::detection
