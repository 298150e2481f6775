// SPDX-License-Identifier: Apache-2.0
// NCCL's kernel events can be lost, late, or carry the times of other work (counter drift, overrun
// rings). Whatever they say: counts and bytes stay exact, no wrong duration reaches a histogram,
// and what is not timed is accounted for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>

#include "collector/collector.h"
#include "proto/buckets.h"
#include "proto/loss.h"
#include "proto/shm_layout.h"
#include "proto/timing_source.h"
#include "tests/system/daemon.h"
#include "tests/system/faults/completion_times.h"
#include "tests/system/faults/fault_rows.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr int kFirstApiWithCalls = 5;

// Operations of one function on one communicator, by their true durations.
struct TrueOperations {
  std::vector<uint64_t> durations_ns;
  uint64_t unaffected = 0;
};

// Recorded counts that no true duration explains, by bucket: each operation explains one count, in
// a bucket that its duration is in give or take the tolerance.
std::map<int, uint64_t> Unexplained(const collector::FunctionSnapshot& recorded,
                                    const std::vector<uint64_t>& durations_ns,
                                    uint64_t tolerance_ns) {
  std::map<int, std::vector<int>> last_bucket_by_first;
  for (const uint64_t ns : durations_ns) {
    const uint64_t least_ns = ns - std::min(ns, tolerance_ns);
    last_bucket_by_first[DurationBuckets::IndexOf(least_ns)].push_back(
        DurationBuckets::IndexOf(ns + tolerance_ns));
  }
  std::map<int, uint64_t> unexplained;
  // By the last bucket that they can explain.
  std::priority_queue<int, std::vector<int>, std::greater<>> at_hand;
  for (int bucket = 0; bucket < DurationBuckets::kCount; ++bucket) {
    for (const int last : last_bucket_by_first[bucket]) at_hand.push(last);
    while (!at_hand.empty() && at_hand.top() < bucket) at_hand.pop();
    for (uint64_t i = 0; i < recorded.duration[static_cast<size_t>(bucket)]; ++i) {
      if (at_hand.empty()) {
        ++unexplained[bucket];
      } else {
        at_hand.pop();
      }
    }
  }
  return unexplained;
}

// FAULT_SEEDS and FAULT_STEPS ask for more.
int Asked(const char* variable, int standard) {
  const char* text = std::getenv(variable);
  return text == nullptr ? standard : std::atoi(text);
}

// Figures of all jobs of a row.
struct Figures {
  uint64_t operations = 0;
  uint64_t timed = 0;
  uint64_t wrong = 0;
  uint64_t in_flight = 0;
};

class TimestampFault : public testing::TestWithParam<Scenario> {
 protected:
  void Play(int seed) {
    segments_.emplace();
    const Scenario& scenario = GetParam();
    std::vector<std::string> options{"--api-version",
                                     std::to_string(scenario.api_version),
                                     "--layout",
                                     scenario.row->layout,
                                     "--steps",
                                     std::to_string(Asked("FAULT_STEPS", 150)),
                                     "--seed",
                                     std::to_string(seed),
                                     "--rate",
                                     "5000",
                                     "--ranks-per-node",
                                     "4",
                                     "--truth-operations"};
    options.insert(options.end(), scenario.row->options.begin(), scenario.row->options.end());
    if (scenario.row->ends_all)
      options.push_back("--no-finalize");  // a destroyed communicator shows none in any case
    const std::string truth_path = results_.path() + "/truth.json";
    const exporter::Finished job = exporter::RunToEnd(
        SimulatorCommand(segments_->path(), truth_path, options),
        {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
    ASSERT_EQ(job.exit_code, 0) << job.output;
    truth_ = ReadTruth(truth_path);
    snapshot_ = collector::Collector({.directories = {segments_->path()}}).Snapshot();
  }

  // As this rank has recorded the communicator.
  const collector::CommunicatorSnapshot* Recorded(const json& communicator) const {
    const uint64_t id = std::stoull(communicator["id"].get<std::string>(), nullptr, 16);
    for (const collector::ProcessSnapshot& process : snapshot_->processes) {
      for (const collector::CommunicatorSnapshot& recorded : process.communicators) {
        if (recorded.id == id && recorded.rank == communicator["rank"].get<uint64_t>())
          return &recorded;
      }
    }
    return nullptr;
  }

  template <typename Visitor>
  void ForEachFunction(Visitor visit) const {
    for (const json& rank : truth_["ranks"]) {
      for (const json& communicator : rank["communicators"]) {
        const collector::CommunicatorSnapshot* recorded = Recorded(communicator);
        ASSERT_NE(recorded, nullptr);
        for (const auto& [name, truth] : communicator["functions"].items()) {
          SCOPED_TRACE(name + " on rank " + std::to_string(rank["rank"].get<int>()));
          visit(*recorded, FunctionByName(name), truth, Listed(communicator["operations"], name));
        }
      }
    }
  }

  static TrueOperations Listed(const json& operations, const std::string& function) {
    TrueOperations listed;
    for (const json& operation : operations) {
      if (operation["function"] != function || operation["true_ns"].is_null()) continue;
      listed.durations_ns.push_back(operation["true_ns"].get<uint64_t>());
      if (!operation["affected"].get<bool>()) ++listed.unaffected;
    }
    return listed;
  }

  static uint64_t Timed(const collector::FunctionSnapshot& recorded) {
    uint64_t timed = 0;
    for (const collector::SizeClassSnapshot& size : recorded.sizes) timed += size.timed_operations;
    return timed;
  }

  template <typename Fits>
  uint64_t Losses(Fits fits) const {
    uint64_t losses = 0;
    for (const collector::ProcessSnapshot& process : snapshot_->processes) {
      for (size_t i = 0; i < kLosses.size(); ++i)
        losses += fits(kLosses[i]) ? process.losses[i] : 0;
    }
    return losses;
  }

  void ExpectKernelEventsOnlyIfAskedFor() const {
    for (const json& rank : truth_["ranks"]) {
      for (const json& communicator : rank["communicators"]) {
        const bool has_asked =
            communicator["asked_timing"].get<std::string>().starts_with("kernel");
        EXPECT_EQ(has_asked, GetParam().row->has_kernel_events);
      }
    }
  }

  void ExpectTimingReason(TimingReason reason) const {
    for (const collector::ProcessSnapshot& process : snapshot_->processes) {
      for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
        EXPECT_EQ(communicator.timing_reason, reason) << "on rank " << communicator.rank;
      }
    }
  }

  void ExpectNothingInFlight() {
    for (const collector::ProcessSnapshot& process : snapshot_->processes) {
      for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
        EXPECT_EQ(communicator.in_flight.size(), 0u) << "on rank " << communicator.rank;
        figures_.in_flight += communicator.in_flight.size();
      }
    }
  }

  void ExpectNoWrongCallTime() const {
    for (const auto& file : std::filesystem::directory_iterator(segments_->path())) {
      std::ifstream segment(file.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(segment), {}};
      for (size_t at = sizeof(layout::SegmentHeader);
           at + sizeof(layout::CommunicatorSlot) <= bytes.size();
           at += sizeof(layout::CommunicatorSlot)) {
        ExpectNoLateCall(CompletionsIn(bytes.data() + at));
      }
    }
  }

  void ExpectExactCounts() const {
    ForEachFunction([](const collector::CommunicatorSnapshot& communicator, Function function,
                       const json& truth, const auto&) {
      const collector::FunctionSnapshot& recorded =
          communicator.functions[static_cast<size_t>(function)];
      EXPECT_EQ(recorded.calls, truth["calls"].get<uint64_t>());
      for (size_t i = 0; i < recorded.sizes.size(); ++i) {
        const json size = truth["sizes"].value(std::to_string(kSizeClassBounds[i]), json::object());
        EXPECT_EQ(recorded.sizes[i].operations, size.value("operations", uint64_t{0}))
            << "size class " << i;
        EXPECT_EQ(recorded.sizes[i].bytes, size.value("bytes", uint64_t{0})) << "size class " << i;
      }
    });
  }

  void ExpectOnlyTrueDurations() {
    std::map<uint64_t, uint64_t> wrong;  // by rank
    std::string text;
    ForEachFunction([&](const collector::CommunicatorSnapshot& communicator, Function function,
                        const json&, const TrueOperations& operations) {
      const collector::FunctionSnapshot& recorded =
          communicator.functions[static_cast<size_t>(function)];
      figures_.timed += Timed(recorded);
      for (const auto& [bucket, count] :
           Unexplained(recorded, operations.durations_ns, GetParam().row->tolerance_ns)) {
        wrong[communicator.rank] += count;
        figures_.wrong += count;
        const double bound =
            DurationBuckets::UpperBound(std::min(bucket, DurationBuckets::kBoundCount - 1));
        text += "\nrank " + std::to_string(communicator.rank) + ": " + std::to_string(count) +
                " of " + std::to_string(recorded.duration[static_cast<size_t>(bucket)]) +
                " durations of " + std::string(TraitsOf(function).name) + " up to " +
                std::to_string(bound * 1e6) + " us; " + std::to_string(Timed(recorded)) + " of " +
                std::to_string(operations.durations_ns.size()) + " timed";
      }
    });
    const auto too_many = std::find_if(wrong.begin(), wrong.end(), [](const auto& w) {
      return w.second > GetParam().row->most_wrong;
    });
    if (too_many != wrong.end()) {
      ADD_FAILURE() << too_many->second << " wrong durations on rank " << too_many->first
                    << "; all of them:" << text;
    }
  }

  // By a cause, or by its communicator, which says that it is not timed any more.
  void ExpectTheUntimedAccountedFor() const {
    uint64_t untimed = 0;
    bool has_untimed_communicator = false;
    ForEachFunction([&](const collector::CommunicatorSnapshot& communicator, Function function,
                        const json&, const TrueOperations& operations) {
      const uint64_t timed = Timed(communicator.functions[static_cast<size_t>(function)]);
      EXPECT_LE(timed, operations.durations_ns.size());
      if (GetParam().row->rest == Rest::kIsTimed) {
        EXPECT_GE(timed, operations.unaffected * 9 / 10);
      }
      const bool says_so = communicator.timing_source == TimingSource::kNone;
      has_untimed_communicator |= says_so;
      untimed += says_so ? 0 : operations.durations_ns.size() - timed;
    });
    const uint64_t given_up =
        Losses([](const LossTraits& loss) { return loss.kind != LossKind::kUnmatched; });
    EXPECT_GE(given_up, untimed + (has_untimed_communicator ? 1 : 0)) << AllLosses();
    if (const char* reason = GetParam().row->reason) {
      EXPECT_GT(Losses([&](const LossTraits& loss) { return loss.reason == reason; }), 0u)
          << AllLosses();
    }
  }

  std::string AllLosses() const {
    std::string text = "losses:";
    for (const LossTraits& loss : kLosses) {
      const uint64_t count = Losses([&](const LossTraits& other) { return &other == &loss; });
      if (count > 0) text += " " + std::string(loss.reason) + "=" + std::to_string(count);
    }
    return text;
  }

  uint64_t Affected() const {
    uint64_t affected = 0;
    for (const json& rank : truth_["ranks"]) {
      for (const json& communicator : rank["communicators"]) {
        for (const json& function : communicator["functions"])
          affected += function.value("affected", uint64_t{0});
      }
    }
    return affected;
  }

  std::optional<collector::ScratchDirectory> segments_;  // of the latest job
  collector::ScratchDirectory results_;
  json truth_;
  std::shared_ptr<const collector::NodeSnapshot> snapshot_;
  Figures figures_;
};

TEST_P(TimestampFault, LeavesCountsExactAndNoWrongDuration) {
  const FaultRow& row = *GetParam().row;
  for (int seed = 1; seed <= Asked("FAULT_SEEDS", 1); ++seed) {
    SCOPED_TRACE("--seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(Play(seed));
    figures_.operations += TotalOperations(truth_);
    EXPECT_EQ(Affected() == 0, row.is_harmless);
    ExpectKernelEventsOnlyIfAskedFor();
    ExpectExactCounts();
    ExpectOnlyTrueDurations();
    ExpectTheUntimedAccountedFor();
    if (row.timing_reason) ExpectTimingReason(*row.timing_reason);
    if (row.ends_all) ExpectNothingInFlight();
    if (row.is_harmless && GetParam().api_version >= kFirstApiWithCalls) ExpectNoWrongCallTime();
  }
  const std::string in_flight =
      row.ends_all ? ", " + std::to_string(figures_.in_flight) + " stuck in flight" : std::string();
  std::printf("%s: %lu operations, %lu timed, %lu wrong%s\n", row.name, figures_.operations,
              figures_.timed, figures_.wrong, in_flight.c_str());
}

INSTANTIATE_TEST_SUITE_P(Rows, TimestampFault, testing::ValuesIn(Scenarios()),
                         [](const auto& test) {
                           return std::string(test.param.row->name) + "_v" +
                                  std::to_string(test.param.api_version);
                         });

}  // namespace
}  // namespace nccl_exporter
