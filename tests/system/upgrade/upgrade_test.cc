// SPDX-License-Identifier: Apache-2.0
// Upgrades while a job runs: plugins and daemons of two versions in every combination, and daemons
// that are replaced. No count may fall or vanish, and in the end all are the ground truth's.
// NCCL_EXPORTER_OLDER is a folder with plugin and daemon of an older version: tools/test-upgrade.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tests/system/end_to_end.h"
#include "tests/system/layout_1_2_reader.h"
#include "tests/system/upgrade/recorded_job.h"
#include "tests/system/upgrade/replayed_job.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

// Each daemon is scraped so often before the next one is started. Jobs run until then.
constexpr int kScrapesOfADaemon = 20;

// Counters of the operations of a job in a scrape. The daemon's own counters start with it.
class JobCounters {
 public:
  void ExpectNoneFell(const Exposition& scrape) {
    std::map<Series, double> now;
    for (const Sample& sample : scrape.samples()) {
      if (IsOfTheJob(sample.name)) now[SeriesOf(sample)] = sample.value;
    }
    for (const auto& [series, value] : before_) {
      const auto found = now.find(series);
      ASSERT_TRUE(found != now.end()) << "vanished: " << Text(series);
      EXPECT_GE(found->second, value) << Text(series);
    }
    before_ = std::move(now);
  }

 private:
  using Series = std::pair<std::string, Labels>;

  static bool IsOfTheJob(const std::string& name) {
    static const std::set<std::string> kOfTheDaemon{
        "nccl_collective_arrival_lateness_seconds_total", "nccl_collective_last_arrivals_total",
        "nccl_collective_compared_operations_total"};
    if (kOfTheDaemon.contains(name)) return false;
    for (const char* end : {"_total", "_bucket", "_count", "_sum"}) {
      if (!name.ends_with(end)) continue;
      for (const char* family : {"nccl_collective_", "nccl_p2p_", "nccl_api_"}) {
        if (name.starts_with(family)) return true;
      }
    }
    return false;
  }
  // Without labels that one of two versions may not have.
  static Series SeriesOf(const Sample& sample) {
    Series series{sample.name, {}};
    for (const char* label : {"comm", "rank", "function", "collective", "size", "phase", "le"}) {
      const auto found = sample.labels.find(label);
      if (found != sample.labels.end()) series.second.insert(*found);
    }
    return series;
  }
  static std::string Text(const Series& series) {
    std::string text = series.first;
    for (const auto& [label, value] : series.second) text += " " + label + "=" + value;
    return text;
  }

  std::map<Series, double> before_;
};

double Operations(const Exposition& scrape) {
  double operations = 0;
  for (const char* name : {"nccl_collective_operations_total", "nccl_p2p_send_operations_total",
                           "nccl_p2p_recv_operations_total"}) {
    for (const Sample& sample : scrape.Find(name)) operations += sample.value;
  }
  return operations;
}

// Follows the job for some scrapes, and until it has gone on.
void Follow(const Daemon& daemon, JobCounters& counters) {
  const double before = Operations(daemon.Scrape());
  int scrapes = 0;
  EXPECT_TRUE(exporter::Eventually([&] {
    const Exposition scrape = daemon.Scrape();
    counters.ExpectNoneFell(scrape);
    const bool is_enough = ++scrapes >= kScrapesOfADaemon && Operations(scrape) > before;
    return is_enough || testing::Test::HasFailure();
  }));
}

void Stop(std::unique_ptr<Daemon>& daemon) {
  daemon->process().Signal(SIGTERM);
  EXPECT_EQ(daemon->process().Wait(), 0) << daemon->process().AllOutput();
  daemon.reset();
}

// Versions are "Today" and "Older".
struct Upgrade {
  const char* plugin;
  const char* daemon;
  const char* next_daemon;  // and back to the first one
};
void PrintTo(const Upgrade& upgrade, std::ostream* out) { *out << upgrade.plugin; }

class UpgradeUnderLoad : public EndToEnd, public testing::WithParamInterface<Upgrade> {
 protected:
  void SetUp() override {
    const Upgrade& upgrade = GetParam();
    for (const std::string version : {upgrade.plugin, upgrade.daemon, upgrade.next_daemon}) {
      if (version == "Older" && older_ == nullptr)
        GTEST_SKIP() << "NCCL_EXPORTER_OLDER names no older version: tools/test-upgrade makes one";
    }
  }
  std::string PathOf(const std::string& version, const std::string& today) const {
    return version == "Today" ? today : std::string(older_) + today.substr(today.rfind('/'));
  }
  std::unique_ptr<Daemon> Start(const char* version) const {
    return std::make_unique<Daemon>(segments_.path(), Options{}, PathOf(version, kDaemonPath));
  }

  const char* const older_ = std::getenv("NCCL_EXPORTER_OLDER");
};

TEST_P(UpgradeUnderLoad, KeepsEveryCountOfTheJob) {
  Options command = Simulator({"--pace", "real", "--duration", "600", "--rate", "50", "--layout",
                               "mixed", "--network", "all", "--ranks-per-node", "2"});
  std::ranges::replace(command, std::string(kPluginPath), PathOf(GetParam().plugin, kPluginPath));
  exporter::ChildProcess job(command, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
  JobCounters counters;
  std::unique_ptr<Daemon> daemon;
  for (const char* version : {GetParam().daemon, GetParam().next_daemon, GetParam().daemon}) {
    if (daemon) Stop(daemon);
    daemon = Start(version);
    Follow(*daemon, counters);
  }
  job.Signal(SIGTERM);
  EXPECT_EQ(job.Wait(), 0) << job.AllOutput();
  const json truth = ReadTruth(TruthPath());
  EXPECT_GT(TotalOperations(truth), 0u);
  const std::unique_ptr<Daemon> last = Start(GetParam().next_daemon);
  for (const Daemon* each : {daemon.get(), last.get()}) {
    counters.ExpectNoneFell(each->Scrape());
    ExpectEqualsTruth(each->Scrape(), truth);
  }
}

INSTANTIATE_TEST_SUITE_P(Plugin, UpgradeUnderLoad,
                         testing::Values(Upgrade{"Today", "Today", "Today"},
                                         Upgrade{"Today", "Older", "Today"},
                                         Upgrade{"Today", "Today", "Older"},
                                         Upgrade{"Older", "Older", "Today"},
                                         Upgrade{"Older", "Today", "Older"}),
                         [](const auto& test) {
                           return std::string(test.param.plugin) + "Daemon" + test.param.daemon +
                                  "Then" + test.param.next_daemon;
                         });

class JobOfLayout12 : public EndToEnd, public testing::WithParamInterface<const char*> {};

TEST_P(JobOfLayout12, KeepsEveryCountWhileItRunsAndDaemonsAreReplaced) {
  ReplayedJob job(kRecordedWith12 + GetParam(), segments_.path());
  JobCounters counters;
  std::unique_ptr<Daemon> daemon;
  for (int i = 0; i < 2; ++i) {
    if (daemon) Stop(daemon);
    daemon = std::make_unique<Daemon>(segments_.path());
    Follow(*daemon, counters);
    EXPECT_EQ(daemon->Scrape().Value("nccl_exporter_segments", {{"state", "live"}}).value_or(0), 2);
  }
  job.Stop();
  EXPECT_GT(job.rounds(), 0u);
  const json truth = job.Truth();
  counters.ExpectNoneFell(daemon->Scrape());
  ExpectEqualsTruth(daemon->Scrape(), truth);
}

INSTANTIATE_TEST_SUITE_P(Replayed, JobOfLayout12, testing::Values("kernel", "drift"),
                         [](const auto& test) { return std::string(test.param); });

// Operations, by communicator, rank, function and size, that the daemon of layout 1.2 sees.
std::map<std::string, uint64_t> ReadByLayout12(const collector::ScratchDirectory& directory) {
  std::map<std::string, uint64_t> counts;
  for (const std::string& name : directory.Files(".seg")) {
    const std::string segment = Content(directory.File(name));
    // Its size comes after its name, and its version last.
    if (segment.size() < 8 || segment.compare(0, 8, std::string(8, '\0')) == 0) continue;
    const Layout12Reader reader(segment);
    EXPECT_EQ(reader.Refusal(), "") << name;
    for (const json& communicator : reader.Communicators()) {
      for (const auto& [function, of_function] : communicator["functions"].items()) {
        for (const auto& [size, of_size] : of_function["sizes"].items()) {
          const std::string key = communicator["id"].get<std::string>() + " " +
                                  communicator["rank"].dump() + " " + function + " " + size;
          counts[key + " operations"] = of_size["operations"];
          counts[key + " busy_ns"] = of_size["busy_ns"];
        }
      }
    }
  }
  return counts;
}

TEST_F(EndToEnd, ADaemonOfLayout12SeesEveryCountOfTodaysPluginGrow) {
  exporter::ChildProcess job(
      Simulator({"--pace", "real", "--duration", "600", "--rate", "50", "--layout", "mixed",
                 "--network", "all", "--ranks-per-node", "2", "--no-finalize", "--env",
                 "NCCL_EXPORTER_COMMUNICATORS=8"}),
      {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
  std::map<std::string, uint64_t> before;
  const auto read = [&] {
    const auto now = ReadByLayout12(segments_);
    for (const auto& [key, count] : before) {
      const auto found = now.find(key);
      EXPECT_TRUE(found != now.end() && found->second >= count) << key;
    }
    return std::exchange(before, now) != now;
  };
  int steps = 0;
  EXPECT_TRUE(exporter::Eventually([&] {
    steps += read() ? 1 : 0;
    return steps >= kScrapesOfADaemon;
  }));
  job.Signal(SIGTERM);
  EXPECT_EQ(job.Wait(), 0) << job.AllOutput();
  read();
  uint64_t operations = 0;
  for (const auto& [key, count] : before) {
    if (key.ends_with(" operations")) operations += count;
  }
  EXPECT_EQ(operations, TotalOperations(ReadTruth(TruthPath())));
}

}  // namespace
}  // namespace nccl_exporter
