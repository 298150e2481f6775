// SPDX-License-Identifier: Apache-2.0
// The daemon's own counters while daemons follow each other: what PromQL makes of all scrapes, against the
// simulator's account of the job.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

constexpr int kRestarts = 20;
// A period of the regular collectives is then three seconds.
constexpr char kTimeScale[] = "--findings.time-scale=10";

// increase() without extrapolation, by series: a smaller value is a start at 0.
class Increases {
 public:
  void Add(const Exposition& scrape, const std::string& name) {
    for (const Sample& sample : scrape.Find(name)) {
      auto& [last, sum] = by_rank_[{sample.labels.at("comm"), sample.labels.at("rank")}];
      if (sample.value < last) ++resets_;
      sum += sample.value < last ? sample.value : sample.value - last;
      last = sample.value;
    }
  }
  double Of(const std::string& comm, const std::string& rank) const {
    const auto found = by_rank_.find({comm, rank});
    return found == by_rank_.end() ? 0 : found->second.second;
  }
  int resets() const { return resets_; }

 private:
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> by_rank_;
  int resets_ = 0;
};

struct Watched {
  Increases kernel_seconds;
  nlohmann::json truth;
};

class DaemonRestarts : public testing::Test {
 protected:
  // Daemons watch a job, one after the other, and each ends by one of two signals.
  Watched Watch(const std::map<std::string, std::string>& environment) {
    std::mt19937 random(20261123);
    const std::string truth_path = results_.path() + "/truth.json";
    const auto start = [&] {
      return std::make_unique<Daemon>(segments_.path(), std::vector<std::string>{kTimeScale});
    };
    Watched watched;
    std::unique_ptr<Daemon> daemon = start();
    exporter::ChildProcess job(
        SimulatorCommand(
            segments_.path(), truth_path,
            {"--pace", "real", "--layout", "dp", "--nodes", "2", "--ranks-per-node", "1",
             "--duration", "40", "--rate", "40", "--no-finalize", "--truth-operations"}),
        environment);
    const auto scrape = [&] {
      const Exposition answer = daemon->Scrape();
      watched.kernel_seconds.Add(answer, "nccl_rank_kernel_seconds_total");
    };
    for (int i = 0; i < kRestarts; ++i) {
      exporter::SleepMilliseconds(static_cast<int>(random() % 1200));
      scrape();
      daemon->process().Signal(random() % 2 == 0 ? SIGKILL : SIGTERM);
      daemon->process().Wait();
      exporter::SleepMilliseconds(static_cast<int>(random() % 300));
      daemon = start();
    }
    EXPECT_EQ(job.Wait(), 0) << job.AllOutput();
    scrape();
    watched.truth = ReadTruth(truth_path);
    EXPECT_GT(TotalOperations(watched.truth), 0u);
    return watched;
  }

  template <typename Check>
  static void ForEachCommunicator(const Watched& watched, Check check) {
    for (const nlohmann::json& rank : watched.truth["ranks"]) {
      for (const nlohmann::json& communicator : rank["communicators"]) {
        double timed_seconds = 0;
        for (const nlohmann::json& function : communicator["functions"])
          timed_seconds += function["duration_sum_ns"].get<double>() / 1e9;
        if (communicator["operations"].empty()) continue;
        SCOPED_TRACE(communicator["id"].get<std::string>());
        const std::string name = std::to_string(communicator["rank"].get<int>());
        check(watched.kernel_seconds.Of(communicator["id"], name), timed_seconds);
      }
    }
  }

  collector::ScratchDirectory segments_;
  collector::ScratchDirectory results_;
};

const std::map<std::string, std::string> kTimed{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                                {"NCCL_ALLGATHERV_ENABLE", "0"}};

TEST_F(DaemonRestarts, ChangeNoKernelTimeWhereEverythingIsTimed) {
  const Watched watched = Watch(kTimed);
  EXPECT_EQ(watched.kernel_seconds.resets(), 0);
  int communicators = 0;
  ForEachCommunicator(watched, [&](double seconds, double timed_seconds) {
    EXPECT_NEAR(seconds, timed_seconds, 1e-6);
    ++communicators;
  });
  EXPECT_GT(communicators, 0);
}

}  // namespace
}  // namespace nccl_exporter
