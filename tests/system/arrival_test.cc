// SPDX-License-Identifier: Apache-2.0
// Arrivals as the daemon compares them, against the simulator's truth: when each kernel really
// started.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using Options = std::vector<std::string>;

// Starts of one collective, by rank. The clocks of the simulated GPUs are up to 5 ms and 8 parts in
// a million off.
using Starts = std::map<int, double>;

// Beyond this, two starts must be ordered: more than 10 us and an eighth of any kernel here.
constexpr double kCertainSeconds = 150e-6;
// Largest average errors of an operation's lateness: some is missed, because none is counted within
// the assumption.
constexpr double kMostMissedSeconds = 20e-6;
constexpr double kMostExcessSeconds = 20e-6;

class Arrivals : public testing::Test {
 protected:
  nlohmann::json Run(const Options& options,
                     const std::map<std::string, std::string>& environment) const {
    Options all{"--pace", "real", "--duration", "6", "--rate", "4", "--truth-operations"};
    all.insert(all.end(), options.begin(), options.end());
    const exporter::Finished job = exporter::RunToEnd(
        SimulatorCommand(segments_.path(), results_.path() + "/truth.json", all), environment);
    EXPECT_EQ(job.exit_code, 0) << job.output;
    return ReadTruth(results_.path() + "/truth.json");
  }
  nlohmann::json RunTimed(const Options& options) const {
    return Run(options, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
  }

  // The collectives of each communicator. On every rank the n-th of a function is the same.
  static std::map<std::string, std::vector<Starts>> CollectivesOf(const nlohmann::json& truth) {
    std::map<std::string, std::map<std::string, std::vector<Starts>>> by_function;
    for (const nlohmann::json& rank : truth["ranks"]) {
      for (const nlohmann::json& communicator : rank["communicators"]) {
        std::map<std::string, size_t> number;
        for (const nlohmann::json& operation : communicator["operations"]) {
          const std::string function = operation["function"];
          if (function == "Send" || function == "Recv") continue;
          std::vector<Starts>& all = by_function[communicator["id"]][function];
          const size_t place = number[function]++;
          all.resize(std::max(all.size(), place + 1));
          all[place][communicator["rank"]] = operation["start_ns"].get<double>() / 1e9;
        }
      }
    }
    std::map<std::string, std::vector<Starts>> collectives;
    for (auto& [communicator, functions] : by_function) {
      for (auto& [function, starts] : functions) {
        collectives[communicator].insert(collectives[communicator].end(), starts.begin(),
                                         starts.end());
      }
    }
    return collectives;
  }

  static double Value(const Exposition& scrape, const std::string& name, const std::string& comm,
                      int rank) {
    return scrape.Value("nccl_collective_" + name, {{"comm", comm}, {"rank", std::to_string(rank)}})
        .value_or(-1);
  }
  // Compared operations of the node: the lowest rank at a time has counted each.
  static double Compared(const Exposition& scrape, const std::string& comm) {
    double sum = 0;
    const std::string name = "nccl_collective_compared_operations_total";
    for (const Sample& row : scrape.Find(name, {{"comm", comm}})) sum += row.value;
    return sum;
  }
  static double Uncompared(const Exposition& scrape, const std::string& reason) {
    return scrape.Value("nccl_exporter_uncompared_operations_total", {{"reason", reason}})
        .value_or(-1);
  }

  // Compares one communicator; returns how many of its operations were compared.
  static double ExpectTruth(const Exposition& scrape, const std::string& comm,
                            const std::vector<Starts>& collectives) {
    std::map<int, double> lateness, surely_last;
    double surely_compared = 0;
    for (const Starts& starts : collectives) {
      std::vector<std::pair<double, int>> order;
      for (const auto& [rank, start] : starts) order.emplace_back(start, rank);
      std::ranges::sort(order);
      for (const auto& [start, rank] : order) lateness[rank] += start - order.front().first;
      const auto& [last, last_rank] = order.back();
      if (last - order.front().first > kCertainSeconds) ++surely_compared;
      if (last - order[order.size() - 2].first > kCertainSeconds) ++surely_last[last_rank];
    }
    const double compared = Compared(scrape, comm);
    EXPECT_GE(compared, surely_compared) << comm;
    EXPECT_LE(compared, static_cast<double>(collectives.size())) << comm;
    for (const auto& [rank, seconds] : lateness) {
      EXPECT_GE(Value(scrape, "last_arrivals_total", comm, rank), surely_last[rank])
          << comm << " rank " << rank;
      const double operations = static_cast<double>(collectives.size());
      const double counted = Value(scrape, "arrival_lateness_seconds_total", comm, rank);
      EXPECT_GE(counted, seconds - operations * kMostMissedSeconds) << comm << " rank " << rank;
      EXPECT_LE(counted, seconds + operations * kMostExcessSeconds) << comm << " rank " << rank;
    }
    return compared;
  }

  collector::ScratchDirectory segments_;
  collector::ScratchDirectory results_;
};

TEST_F(Arrivals, AreThoseOfTheKernels) {
  Daemon daemon(segments_.path());
  const nlohmann::json truth = RunTimed({"--ranks-per-node", "4", "--layout", "3d"});
  const Exposition scrape = daemon.Scrape();
  double compared = 0, all = 0;
  for (const auto& [comm, collectives] : CollectivesOf(truth)) {
    compared += ExpectTruth(scrape, comm, collectives);
    all += static_cast<double>(collectives.size());
  }
  EXPECT_GT(compared, all / 2);
  for (const char* reason : {"mismatch", "rank_twice", "ring_overrun"})
    EXPECT_EQ(Uncompared(scrape, reason), 0) << reason;
}

TEST_F(Arrivals, OfTwoDaemonsAreTheSame) {
  Daemon first(segments_.path()), second(segments_.path());
  const nlohmann::json truth = RunTimed({"--ranks-per-node", "2", "--layout", "dp"});
  for (const auto& [comm, collectives] : CollectivesOf(truth)) {
    ExpectTruth(first.Scrape(), comm, collectives);
    ExpectTruth(second.Scrape(), comm, collectives);
  }
}

TEST_F(Arrivals, AreNotComparedWithoutKernelTimes) {
  Daemon daemon(segments_.path());
  Run({"--ranks-per-node", "2", "--layout", "dp", "--network", "all"},
      {{"NCCL_EXPORTER_KERNEL_TIMING", "off"}});
  EXPECT_TRUE(daemon.Scrape().Find("nccl_collective_compared_operations_total").empty());
}

TEST_F(Arrivals, OfARankAloneOnItsNodeAreNotCompared) {
  Daemon daemon(segments_.path());
  RunTimed({"--nodes", "2", "--node", "0", "--ranks-per-node", "1", "--layout", "dp"});
  const Exposition scrape = daemon.Scrape();
  EXPECT_FALSE(scrape.Find("nccl_collective_operations_total").empty());
  EXPECT_TRUE(scrape.Find("nccl_collective_compared_operations_total").empty());
}

}  // namespace
}  // namespace nccl_exporter
