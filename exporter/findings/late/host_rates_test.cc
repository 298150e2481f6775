// SPDX-License-Identifier: Apache-2.0
// The line about its host in the finding of a late rank.
#include "exporter/findings/late/host_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "exporter/findings/testing/late_job.h"

namespace nccl_exporter::exporter {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Key;
using testing::Pair;
using testing::SizeIs;

constexpr uint64_t kTp = 1;
constexpr size_t kProcesses = 8, kLate = 5;
constexpr const char* kMeanwhile = "on its host meanwhile";
constexpr uint64_t kMs = 1000000;

class HostRatesTest : public testing::Test {
 protected:
  HostRatesTest() : job_(kProcesses) {
    std::vector<size_t> all;
    for (size_t i = 0; i < kProcesses; ++i) all.push_back(i);
    job_.Make(kTp, "tp", all);
    for (collector::ProcessSnapshot& process : job_.node().processes)
      process.host = {{.cpu_wait_ns = 0, .major_faults = 0, .throttled_ns = 0}};
  }

  using Advance = std::function<void(size_t process, collector::HostSignals& host)>;
  // Seven minutes without a late rank, and three with one. `advance` adds what happens in a step of
  // the latter, of 5 s.
  Finding FindingWith(const Advance& advance) {
    const auto step = [&](size_t late) {
      for (size_t i = 0; i < kProcesses; ++i) job_.Busy(i, kTp, i == late ? 0.1 : 0.2);
    };
    job_.Run(420, [&] { step(kProcesses); });
    job_.Run(180, [&] {
      step(kLate);
      for (size_t i = 0; i < kProcesses; ++i) {
        if (job_.node().processes[i].host) advance(i, *job_.node().processes[i].host);
      }
    });
    const std::vector<Finding> findings = job_.Findings();
    EXPECT_THAT(findings, SizeIs(1));
    return findings.empty() ? Finding() : findings.front();
  }

  LateJob job_;
};

TEST_F(HostRatesTest, NameTheSignalThatDepartsFromTheMedian) {
  const Finding finding = FindingWith([](size_t process, collector::HostSignals& host) {
    *host.cpu_wait_ns += (process == kLate ? 1550 : 20) * kMs;
  });
  EXPECT_THAT(finding.evidence,
              Contains(Pair(kMeanwhile, "waits for a CPU 31.0 % of the time, its peers 0.4 %")));
}

TEST_F(HostRatesTest, NameAllSignalsThatDepart) {
  const Finding finding = FindingWith([](size_t process, collector::HostSignals& host) {
    if (process != kLate) return;
    *host.throttled_ns += 1000 * kMs;
    *host.major_faults += 500;
  });
  EXPECT_THAT(finding.evidence,
              Contains(Pair(kMeanwhile,
                            "is throttled by its CPU quota 20.0 % of the time, its peers 0.0 %; "
                            "waits for a disk at 100 page faults per second, its peers at 0")));
}

TEST_F(HostRatesTest, SayThatNothingIsUnusual) {
  const Finding finding = FindingWith([](size_t process, collector::HostSignals& host) {
    *host.cpu_wait_ns += (process == kLate ? 100 : 20) * kMs;  // 2 %
    *host.major_faults += 7;
  });
  EXPECT_THAT(finding.evidence,
              Contains(Pair(kMeanwhile,
                            "nothing unusual, compared with its peers: CPU, quota, page faults")));
}

TEST_F(HostRatesTest, NameNothingThatAllRanksHave) {
  const Finding finding = FindingWith([](size_t process, collector::HostSignals& host) {
    *host.cpu_wait_ns += (process == kLate ? 2500 : 2000) * kMs;
  });
  EXPECT_THAT(finding.evidence, Contains(Pair(kMeanwhile, testing::StartsWith("nothing unusual"))));
}

// A process is surveyed after others, and its quota is read seldom.
TEST_F(HostRatesTest, ASignalThatCameLaterIsCompared) {
  for (collector::ProcessSnapshot& process : job_.node().processes)
    process.host->throttled_ns.reset();
  int steps = 0;
  const Finding finding = FindingWith([&](size_t process, collector::HostSignals& host) {
    if (process == 0) ++steps;
    if (steps < 29) return;  // in the last 40 s, of a window of 45 s
    host.throttled_ns = host.throttled_ns.value_or(0) + (process == kLate ? 1000 * kMs : 0);
  });
  EXPECT_THAT(finding.evidence,
              Contains(Pair(kMeanwhile,
                            "is throttled by its CPU quota 20.0 % of the time, its peers 0.0 %")));
}

TEST_F(HostRatesTest, WhatIsSeenForLessThanHalfAWindowIsNotCompared) {
  for (collector::ProcessSnapshot& process : job_.node().processes)
    process.host->throttled_ns.reset();
  int steps = 0;
  const Finding finding = FindingWith([&](size_t process, collector::HostSignals& host) {
    if (process == 0) ++steps;
    if (steps < 34) return;
    host.throttled_ns = host.throttled_ns.value_or(0) + (process == kLate ? 1000 * kMs : 0);
  });
  EXPECT_THAT(
      finding.evidence,
      Contains(Pair(kMeanwhile, "nothing unusual, compared with its peers: CPU, page faults")));
}

// Regression: a step that went from the window left three reads of a cgroup for 40 s, 112.5 %.
TEST(HostRatesOfAWindowTest, AreThoseOfNineStepsThoughOneWasLate) {
  HostRates rates{Thresholds()};
  collector::NodeSnapshot node;
  for (uint64_t i = 0; i < 2; ++i) {
    collector::ProcessSnapshot& process = node.processes.emplace_back();
    process.file.inode = i;
    process.is_alive = true;
    process.host.emplace().memory_stall_ns = 0;
  }
  for (int look = 0; look <= 12; ++look) {
    if (look % 3 == 0) node.processes[0].host->memory_stall_ns = look * 5000 * kMs;
    rates.Record(node, look * 5000 * static_cast<int64_t>(kMs) + (look == 12 ? 2000000 : 0));
  }
  EXPECT_EQ(rates.Unusual(node, node.processes[0]),
            "is in a cgroup that waits for memory 100.0 % of the time, its peers 0.0 %");
}

// As with hidepid, or in another PID namespace.
TEST_F(HostRatesTest, SayThatTheDaemonDoesNotSeeTheProcess) {
  for (collector::ProcessSnapshot& process : job_.node().processes) process.host.reset();
  const Finding finding = FindingWith([](size_t, collector::HostSignals&) {});
  EXPECT_THAT(
      finding.evidence,
      Contains(Pair(kMeanwhile, "not known: the daemon does not see the process in /proc")));
}

TEST_F(HostRatesTest, SayThatTheProcessIsNotLookedAt) {
  for (collector::ProcessSnapshot& process : job_.node().processes) {
    process.host.reset();
    process.seen_pid = 77;
  }
  const Finding finding = FindingWith([](size_t, collector::HostSignals&) {});
  EXPECT_THAT(
      finding.evidence,
      Contains(
          Pair(kMeanwhile, "not known: of a user's processes 16 are looked at, and 32 of a node")));
}

// Regression: the rank itself was among its peers, and so were those that had ended.
TEST_F(HostRatesTest, PeersAreOthersThatLive) {
  for (size_t i = 0; i < kProcesses; ++i) {
    if (i != kLate && i != 0) job_.node().processes[i].host.reset();
  }
  job_.node().processes[1].host = {{.cpu_wait_ns = 0}};
  const Finding finding = FindingWith([&](size_t process, collector::HostSignals& host) {
    if (process == 1) job_.node().processes[1].is_alive = false;
    if (host.cpu_wait_ns)
      *host.cpu_wait_ns += (process == kLate ? 1550 : process == 0 ? 800 : 0) * kMs;
  });
  EXPECT_THAT(finding.evidence,
              Contains(Pair(kMeanwhile, "waits for a CPU 31.0 % of the time, its peers 16.0 %")));
}

TEST_F(HostRatesTest, SayNothingWhereNoPeerIsSeen) {
  for (size_t i = 0; i < kProcesses; ++i) {
    if (i != kLate) job_.node().processes[i].host.reset();
  }
  const Finding finding =
      FindingWith([](size_t, collector::HostSignals& host) { *host.cpu_wait_ns += 2500 * kMs; });
  EXPECT_THAT(finding.evidence, testing::Not(Contains(Key(kMeanwhile))));
}

}  // namespace
}  // namespace nccl_exporter::exporter
