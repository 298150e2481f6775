// SPDX-License-Identifier: Apache-2.0
// Derived counters while daemons follow each other: what PromQL makes of all scrapes, against the
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

struct Timed {
  double operations = 0, timed = 0, seconds = 0;
};

struct Watched {
  Increases kernel_seconds, steps;
  bool keeps_state = false;
  nlohmann::json truth;
};

class DaemonRestarts : public testing::Test {
 protected:
  // Daemons watch a job, one after the other, and each ends by one of two signals.
  Watched Watch(const std::map<std::string, std::string>& environment, bool keeps_state) {
    std::mt19937 random(20261123);
    const std::string truth_path = results_.path() + "/truth.json";
    const auto start = [&] {
      std::vector<std::string> options{kTimeScale};
      if (keeps_state) options.push_back("--state.dir=" + results_.File("state"));
      return std::make_unique<Daemon>(segments_.path(), options);
    };
    Watched watched;
    watched.keeps_state = keeps_state;
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
      watched.steps.Add(answer, "nccl_rank_steps_total");
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

  // Operations of the rarest collective and size. The job has no others than those of each step.
  static double StepsOf(const nlohmann::json& communicator) {
    double fewest = 1e18;
    for (const nlohmann::json& function : communicator["functions"]) {
      for (const nlohmann::json& size : function["sizes"]) {
        const double operations = size["operations"].get<double>();
        if (operations > 0) fewest = std::min(fewest, operations);
      }
    }
    return fewest;
  }

  template <typename Check>
  static void ForEachCommunicator(const Watched& watched, Check check) {
    std::map<std::string, int> lowest;  // rank of a communicator: steps are counted there
    for (const nlohmann::json& rank : watched.truth["ranks"]) {
      for (const nlohmann::json& communicator : rank["communicators"]) {
        const int own = communicator["rank"];
        int& least = lowest.emplace(communicator["id"], own).first->second;
        least = std::min(least, own);
      }
    }
    for (const nlohmann::json& rank : watched.truth["ranks"]) {
      for (const nlohmann::json& communicator : rank["communicators"]) {
        // Operations outside of a window have no time in the truth: they count by the mean of all
        // timed ones of their function and size. All operations of one size have one law.
        std::map<std::pair<std::string, uint64_t>, Timed> by_size;
        for (const nlohmann::json& operation : communicator["operations"]) {
          Timed& size = by_size[{operation["function"], operation["bytes"]}];
          ++size.operations;
          if (operation["true_ns"].is_null()) continue;
          ++size.timed;
          size.seconds += operation["true_ns"].get<double>() / 1e9;
        }
        double true_seconds = 0, timed_seconds = 0;
        for (const auto& [size, counted] : by_size)
          true_seconds += counted.seconds / counted.timed * counted.operations;
        for (const nlohmann::json& function : communicator["functions"])
          timed_seconds += function["duration_sum_ns"].get<double>() / 1e9;
        if (by_size.empty()) continue;
        SCOPED_TRACE(communicator["id"].get<std::string>());
        const std::string name = std::to_string(communicator["rank"].get<int>());
        check(watched.kernel_seconds.Of(communicator["id"], name), true_seconds, timed_seconds);
        if (!watched.keeps_state) continue;
        const bool counts_steps = lowest[communicator["id"]] == communicator["rank"];
        EXPECT_EQ(watched.steps.Of(communicator["id"], name),
                  counts_steps ? StepsOf(communicator) : 0);
      }
    }
  }

  collector::ScratchDirectory segments_;
  collector::ScratchDirectory results_;
};

const std::map<std::string, std::string> kTimed{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                                {"NCCL_ALLGATHERV_ENABLE", "0"}};
const std::map<std::string, std::string> kSampled{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                                  {"NCCL_ALLGATHERV_ENABLE", "0"},
                                                  {"NCCL_EXPORTER_SAMPLING", "0.3"},
                                                  {"NCCL_EXPORTER_SAMPLING_PERIOD_SECONDS", "0.5"},
                                                  {"NCCL_EXPORTER_SAMPLING_LEARNING_SECONDS", "1"}};

TEST_F(DaemonRestarts, ChangeNoKernelTimeWhereEverythingIsTimed) {
  const Watched watched = Watch(kTimed, false);
  EXPECT_EQ(watched.kernel_seconds.resets(), 0);
  int communicators = 0;
  ForEachCommunicator(watched, [&](double seconds, double, double timed_seconds) {
    EXPECT_NEAR(seconds, timed_seconds, 1e-6);
    ++communicators;
  });
  EXPECT_GT(communicators, 0);
}

TEST_F(DaemonRestarts, ChangeNothingUnderSamplingWithTheState) {
  const Watched watched = Watch(kSampled, true);
  EXPECT_EQ(watched.kernel_seconds.resets(), 0);
  EXPECT_EQ(watched.steps.resets(), 0);
  int communicators = 0;
  ForEachCommunicator(watched, [&](double seconds, double true_seconds, double timed_seconds) {
    EXPECT_LT(timed_seconds, 0.75 * true_seconds);  // the rest is estimated
    EXPECT_NEAR(seconds, true_seconds, 0.02 * true_seconds);
    ++communicators;
  });
  EXPECT_GT(communicators, 0);
}

TEST_F(DaemonRestarts, AddNothingUnderSamplingWithoutTheState) {
  const Watched watched = Watch(kSampled, false);
  EXPECT_GT(watched.kernel_seconds.resets(), 0);
  int communicators = 0;
  ForEachCommunicator(watched, [&](double seconds, double true_seconds, double) {
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 1.01 * true_seconds);
    ++communicators;
  });
  EXPECT_GT(communicators, 0);
}

}  // namespace
}  // namespace nccl_exporter
