// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/ground_truth_file.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

namespace nccl_exporter::sim {
namespace {

template <typename Counts>
nlohmann::json BucketsOf(const Counts& counts) {
  nlohmann::json buckets = nlohmann::json::object();
  for (const auto& [index, count] : counts) buckets[std::to_string(index)] = count;
  return buckets;
}

nlohmann::json SizesOf(const FunctionCounts& function) {
  nlohmann::json sizes = nlohmann::json::object();
  for (const auto& [bound, size] : function.sizes) {
    sizes[std::to_string(bound)] = {{"operations", size.operations},
                                    {"bytes", size.bytes},
                                    {"timed_operations", size.timed_operations},
                                    {"timed_bytes", size.timed_bytes},
                                    {"busy_ns", size.busy_ns},
                                    {"duration", BucketsOf(size.duration)}};
  }
  return sizes;
}

nlohmann::json TruthOf(const FunctionCounts& function) {
  return {{"calls", function.calls},
          {"sizes", SizesOf(function)},
          {"completed", function.completed},
          {"duration", BucketsOf(function.duration)},
          {"duration_sum_ns", function.duration_sum_ns},
          {"bandwidth", BucketsOf(function.bandwidth)},
          {"bandwidth_sum", function.bandwidth_sum},
          {"bandwidth_sum_kib", function.bandwidth_sum_kib}};
}

// Counts the operations of each function that a fault has affected.
void CountAffected(const std::vector<TrueOperation>& operations, nlohmann::json& functions) {
  for (nlohmann::json& function : functions) function["affected"] = 0;
  for (const TrueOperation& operation : operations) {
    nlohmann::json& affected =
        functions[std::string(TraitsOf(operation.function).name)]["affected"];
    affected = affected.get<uint64_t>() + (operation.is_affected ? 1 : 0);
  }
}

nlohmann::json ListOf(const std::vector<TrueOperation>& operations) {
  nlohmann::json list = nlohmann::json::array();
  for (const TrueOperation& operation : operations) {
    nlohmann::json& entry =
        list.emplace_back(nlohmann::json{{"function", TraitsOf(operation.function).name},
                                         {"bytes", operation.bytes},
                                         {"start_ns", operation.start_ns},
                                         {"affected", operation.is_affected}});
    entry["true_ns"] = operation.true_ns ? nlohmann::json(*operation.true_ns) : nlohmann::json();
  }
  return list;
}

nlohmann::json TruthOf(const NetworkCounts& counts) {
  nlohmann::json truth{{"operations", counts.operations},
                       {"steps", counts.steps},
                       {"bytes", counts.bytes},
                       {"total_ns", counts.total_ns}};
  for (size_t i = 0; i < counts.state_ns.size(); ++i) {
    const std::string name(NameOf(static_cast<NetworkState>(i)));
    truth["state_ns"][name] = counts.state_ns[i];
    truth["between_ns"][name] = counts.between_ns[i];
  }
  return truth;
}

nlohmann::json TruthOf(const NetworkTruth& network) {
  const auto of = [](const NetworkTruth::Direction& direction) {
    return nlohmann::json{{"all", TruthOf(direction.all)},
                          {"reported", TruthOf(direction.reported)}};
  };
  return {{"send", of(network.send)},
          {"recv", of(network.receive)},
          {"reported_started", network.reported_started},
          {"foreign_taken", network.foreign_taken}};
}

// Null, or why ncclCommDestroy would never return.
nlohmann::json HangOf(const LiveCommunicator& communicator) {
  if (!communicator.destroy_hang) return {};
  const auto& [channel, unending] = *communicator.destroy_hang;
  return {{"function", TraitsOf(unending.wait.function).name},
          {"number", unending.wait.number},
          {"channel", channel},
          {"entry", unending.entry},
          {"awaited", unending.wait.counter},
          {"shown", unending.shown}};
}

}  // namespace

nlohmann::json TruthOf(const LiveCommunicator& communicator, const GroundTruth& counted,
                       const PlayOptions& options) {
  const bool is_described = options.release.DescribesCommunicatorAtInit();
  nlohmann::json functions = nlohmann::json::object();
  for (const auto& [function, counts] : counted.Counts()) {
    functions[std::string(TraitsOf(function).name)] = TruthOf(counts);
  }
  nlohmann::json truth{
      {"id", fmt::format("{:016x}", communicator.id)},
      {"name", is_described && communicator.is_named ? communicator.shape.name : ""},
      {"rank", communicator.rank},
      {"ranks", is_described ? communicator.shape.ranks() : 0},
      {"nodes", is_described ? communicator.shape.nodes : 0},
      {"timing_source",
       NameOf(communicator.is_drifting ? Timing::kNone : communicator.timing.load())},
      {"asked_timing", NameOf(communicator.timing.load())},
      {"mask_faults", communicator.mask_faults.load()},
      {"destroy_hang", HangOf(communicator)},
      {"functions", std::move(functions)}};
  if (const NetworkTruth network = counted.Network(); network.Any())
    truth["network"] = TruthOf(network);
  const std::vector<TrueOperation> operations = counted.Operations();
  if (options.faults.Any()) CountAffected(operations, truth["functions"]);
  if (options.lists_operations) truth["operations"] = ListOf(operations);
  return truth;
}

nlohmann::json TruthOfRank(int rank, int local_rank, int node, int64_t pid, bool is_killed,
                           const std::string& gpu_uuid) {
  return {{"rank", rank},
          {"local_rank", local_rank},
          {"node", node},
          {"pid", pid},
          {"killed", is_killed},
          {"gpu_uuid", gpu_uuid},
          {"communicators", nlohmann::json::array()}};
}

bool WriteJson(const std::string& path, const nlohmann::json& document) {
  std::error_code unknown;
  const auto status = std::filesystem::symlink_status(path, unknown);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    std::ofstream file(path);
    file << document.dump(1) << '\n';
    file.close();
    return static_cast<bool>(file);
  }
  const std::string unfinished = path + ".part";
  {
    std::ofstream file(unfinished, std::ios::trunc);
    file << document.dump(1) << '\n';
    file.close();
    if (!file) return false;
  }
  return std::rename(unfinished.c_str(), path.c_str()) == 0;
}

std::string SummaryOf(const nlohmann::json& truth) {
  std::string text = fmt::format("{:>6} {:>5} {:>14} {:>14} {:>12} {:>18}  {}\n", "rank", "node",
                                 "communicators", "operations", "timed", "bytes", "timing");
  for (const nlohmann::json& rank : truth["ranks"]) {
    SizeCounts sum;
    std::set<std::string> timings;
    for (const nlohmann::json& communicator : rank["communicators"]) {
      timings.insert(communicator["timing_source"].get<std::string>());
      for (const nlohmann::json& function : communicator["functions"]) {
        for (const nlohmann::json& size : function["sizes"]) {
          sum.operations += size["operations"].get<uint64_t>();
          sum.timed_operations += size["timed_operations"].get<uint64_t>();
          sum.bytes += size["bytes"].get<uint64_t>();
        }
      }
    }
    std::string timing;
    for (const std::string& name : timings) timing += (timing.empty() ? "" : ",") + name;
    text += fmt::format("{:>6} {:>5} {:>14} {:>14} {:>12} {:>18}  {}{}\n", rank["rank"].get<int>(),
                        rank["node"].get<int>(), rank["communicators"].size(), sum.operations,
                        sum.timed_operations, sum.bytes, timing,
                        rank["killed"].get<bool>() ? " (killed)" : "");
  }
  return text;
}

}  // namespace nccl_exporter::sim
