// SPDX-License-Identifier: Apache-2.0
// NCCL's kernel events can be lost, late, or tell the time of other work (counter drift, overrun rings). Whatever they
// say: counts and bytes stay exact, no wrong duration reaches a histogram, and what is not timed is accounted for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>

#include "collector/collector.h"
#include "proto/buckets.h"
#include "proto/data_quality.h"
#include "proto/shm_layout.h"
#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

// Reading two clock ticks of 32 ns.
constexpr uint64_t kTicksNs = 64;
// Between the channels of one kernel at both ends: what an operation may seem shorter by when one channel is lost.
constexpr uint64_t kChannelSkewNs = 800 + kTicksNs;

constexpr int kFirstApiWithCalls = 5;

// What becomes of the operations that the fault does not get at.
enum class Rest { kIsTimed, kMayBeUntimed };

struct FaultRow {
  const char* name;
  std::vector<std::string> options;
  std::vector<int> api_versions;
  Rest rest;
  const char* reason = nullptr;  // that the plugin must give, if only one fits; else null
  uint64_t tolerance_ns = kTicksNs;
  bool is_harmless = false;  // no event is lost or tells another time than its own
  // Wrong durations that a rank may record before the fault can be told: as long as all channels of a launch show the
  // time of one and the same later launch, nothing contradicts it.
  uint64_t most_wrong = 0;
  const char* layout = "ladder";
  bool has_kernel_events = true;  // the plugin asks for them
  // Of every communicator; nothing: any.
  std::optional<TimingReason> timing_reason = {};
  // The job's end is that of all its operations: none is shown in flight then.
  bool ends_all = false;
};

// One row a fault.
const FaultRow kFaultRows[] = {
    {"SelfSendDrift",
     {"--fault", "drift-self-send"},
     {4, 5, 6},
     Rest::kMayBeUntimed,
     nullptr,
     kTicksNs,
     false,
     0,
     "ladder-to-self"},
    {"GraphDrift", {"--fault", "drift-graph", "--graph"}, {4, 5, 6}, Rest::kMayBeUntimed, nullptr},
    {.name = "BroadcastDriftOn2_31",
     .options = {"--fault", "drift-broadcast", "--nccl-version", "23102", "--env", "NCCL_ALLGATHERV_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .is_harmless = true,
     .has_kernel_events = false,
     .timing_reason = TimingReason::kAllgathervEnabled,
     .ends_all = true},
    {.name = "BroadcastDriftOn2_32",
     .options = {"--fault", "drift-broadcast", "--nccl-version", "23206", "--env", "NCCL_ALLGATHERV_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .is_harmless = true,
     .has_kernel_events = false,
     .timing_reason = TimingReason::kAllgathervEnabled,
     .ends_all = true},
    {.name = "RasMask",
     .options = {"--fault", "ras-mask:every=20000000", "--nccl-version", "23206", "--recreate-every", "50"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .timing_reason = TimingReason::kMaskOverride,
     .ends_all = true},
    {.name = "RasNone",
     .options = {"--fault", "ras-mask:every=20000000,mask=32", "--nccl-version", "23206"},
     .api_versions = {7},
     .rest = Rest::kMayBeUntimed,
     .ends_all = true},
    {.name = "NullParents",
     .options = {"--nccl-version", "23206", "--env", "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .ends_all = true},
    {.name = "SymmetricEager",
     .options = {"--symmetric", "--nccl-version", "23206"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "single",
     .ends_all = true},
    {.name = "SymmetricFsdp",
     .options = {"--nccl-version", "23206", "--symmetric"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricAggregated",
     .options = {"--nccl-version", "23206", "--symmetric", "--aggregate", "3"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricCaptured",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricCapturedAmongOthers",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "ladder",
     .ends_all = true},
    {.name = "SymmetricCapturedAggregated",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph", "--aggregate", "3"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricNullParents",
     .options = {"--nccl-version", "23206", "--symmetric", "--env", "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricNullParentsAggregated",
     .options = {"--nccl-version", "23206", "--symmetric", "--aggregate", "3", "--env", "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {.name = "SymmetricNullParentsCaptured",
     .options = {"--nccl-version", "23206", "--symmetric", "--graph", "--env", "NCCL_ENQUEUE_REARCH_ENABLE=1"},
     .api_versions = {7},
     .rest = Rest::kIsTimed,
     .is_harmless = true,
     .layout = "fsdp",
     .ends_all = true},
    {"HostAhead", {"--fault", "host-ahead"}, {4, 5, 6, 7}, Rest::kMayBeUntimed, nullptr, kTicksNs, false, 2},
    {"DeviceAhead", {"--fault", "device-ahead"}, {4, 5, 6, 7}, Rest::kMayBeUntimed, nullptr},
    {"RingOverrun",
     {"--fault", "ring-overrun:late=40000000,every=50000000"},
     {4, 5, 6, 7},
     Rest::kMayBeUntimed,
     nullptr,
     kChannelSkewNs},  // a thread that catches up may be 64 launches further on one channel than on another
    {"LostStart", {"--fault", "lost-start"}, {4, 5, 6}, Rest::kIsTimed, nullptr},
    {"LostKernel", {"--fault", "lost-kernel"}, {4, 5, 6, 7}, Rest::kIsTimed, nullptr},
    {"Stuck",
     {"--fault", "stuck"},
     {4, 5, 6, 7},
     Rest::kMayBeUntimed,
     nullptr,
     kChannelSkewNs},  // of a Send or Receive it is not known that it lacks a channel
    {"Backwards", {"--fault", "backwards"}, {4, 5, 6, 7}, Rest::kIsTimed, "stop_before_start"},
    {"Zero", {"--fault", "zero"}, {4, 5, 6, 7}, Rest::kIsTimed, "zero_timestamp"},
    {"Equal", {"--fault", "equal"}, {4, 5, 6, 7}, Rest::kIsTimed, nullptr},
    {"JumpForward", {"--fault", "jump:by=5000000"}, {4, 5, 6, 7}, Rest::kMayBeUntimed, nullptr},
    {"JumpBack", {"--fault", "jump:by=-5000000"}, {4, 5, 6, 7}, Rest::kMayBeUntimed, nullptr},
    {"LatePoll",
     {"--fault", "ring-overrun:late=3000000,every=10000000"},
     {4, 5, 6, 7},
     Rest::kIsTimed,
     nullptr,
     kTicksNs,
     true},
    {"NoFault", {}, {4, 5, 6, 7}, Rest::kIsTimed, nullptr, kTicksNs, true},
};

struct Scenario {
  const FaultRow* row;
  int api_version;
};

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.row->name << " on v" << scenario.api_version;
}

std::vector<Scenario> Scenarios() {
  std::vector<Scenario> scenarios;
  for (const FaultRow& row : kFaultRows) {
    for (const int api_version : row.api_versions) scenarios.push_back({&row, api_version});
  }
  return scenarios;
}

// Operations of one function on one communicator, by their true durations.
struct TrueOperations {
  std::vector<uint64_t> durations_ns;
  uint64_t unaffected = 0;
};

// Recorded counts that no true duration explains, by bucket: each operation explains one count, in a bucket that its
// duration is in give or take the tolerance.
std::map<int, uint64_t> Unexplained(const FunctionSnapshot& recorded, const std::vector<uint64_t>& durations_ns,
                                    uint64_t tolerance_ns) {
  std::map<int, std::vector<int>> last_bucket_by_first;
  for (const uint64_t ns : durations_ns) {
    const uint64_t least_ns = ns - std::min(ns, tolerance_ns);
    last_bucket_by_first[DurationBuckets::IndexOf(least_ns)].push_back(DurationBuckets::IndexOf(ns + tolerance_ns));
  }
  std::map<int, uint64_t> unexplained;
  std::priority_queue<int, std::vector<int>, std::greater<>> at_hand;  // by the last bucket that they can explain
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

// Of all jobs of a row.
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
    if (scenario.row->ends_all) options.push_back("--no-finalize");  // a destroyed communicator shows none in any case
    const std::string truth_path = results_.path() + "/truth.json";
    const Finished job = RunToEnd(SimulatorCommand(segments_->path(), truth_path, options),
                                  {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
    ASSERT_EQ(job.exit_code, 0) << job.output;
    truth_ = ReadTruth(truth_path);
    snapshot_ = Collector({.directories = {segments_->path()}}).Snapshot();
  }

  // Of the account's communicator, as this rank has recorded it.
  const CommunicatorSnapshot* Recorded(const json& communicator) const {
    const uint64_t id = std::stoull(communicator["id"].get<std::string>(), nullptr, 16);
    for (const ProcessSnapshot& process : snapshot_->processes) {
      for (const CommunicatorSnapshot& recorded : process.communicators) {
        if (recorded.id == id && recorded.rank == communicator["rank"].get<uint64_t>()) return &recorded;
      }
    }
    return nullptr;
  }

  template <typename Visitor>
  void ForEachFunction(Visitor visit) const {
    for (const json& rank : truth_["ranks"]) {
      for (const json& communicator : rank["communicators"]) {
        const CommunicatorSnapshot* recorded = Recorded(communicator);
        ASSERT_NE(recorded, nullptr);
        for (const auto& [name, account] : communicator["functions"].items()) {
          SCOPED_TRACE(name + " on rank " + std::to_string(rank["rank"].get<int>()));
          visit(*recorded, FunctionByName(name), account, Listed(communicator["operations"], name));
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

  static uint64_t Timed(const FunctionSnapshot& recorded) {
    uint64_t timed = 0;
    for (const SizeClassSnapshot& size : recorded.sizes) timed += size.timed_operations;
    return timed;
  }

  template <typename Fits>
  uint64_t Losses(Fits fits) const {
    uint64_t losses = 0;
    for (const ProcessSnapshot& process : snapshot_->processes) {
      for (size_t i = 0; i < kLosses.size(); ++i) losses += fits(kLosses[i]) ? process.losses[i] : 0;
    }
    return losses;
  }

  void ExpectKernelEventsOnlyIfAskedFor() const {
    for (const json& rank : truth_["ranks"]) {
      for (const json& communicator : rank["communicators"]) {
        const bool has_asked = communicator["asked_timing"].get<std::string>().starts_with("kernel");
        EXPECT_EQ(has_asked, GetParam().row->has_kernel_events);
      }
    }
  }

  void ExpectTimingReason(TimingReason reason) const {
    for (const ProcessSnapshot& process : snapshot_->processes) {
      for (const CommunicatorSnapshot& communicator : process.communicators) {
        EXPECT_EQ(communicator.timing_reason, reason) << "on rank " << communicator.rank;
      }
    }
  }

  void ExpectNothingInFlight() {
    for (const ProcessSnapshot& process : snapshot_->processes) {
      for (const CommunicatorSnapshot& communicator : process.communicators) {
        EXPECT_EQ(communicator.in_flight.size(), 0u) << "on rank " << communicator.rank;
        figures_.in_flight += communicator.in_flight.size();
      }
    }
  }

  struct CompletionTimes {
    int64_t call_ns;
    int64_t start_ns;
    int64_t stop_ns;
    int64_t delivered_ns;
  };

  // The latest completions of a communicator, as they stand in its segment.
  static std::vector<CompletionTimes> CompletionsIn(const char* slot) {
    std::vector<CompletionTimes> completions;
    for (size_t i = 0; i < layout::kCompletionEntries; ++i) {
      const auto word = [&](size_t field) {
        int64_t value = 0;
        const size_t entry = offsetof(layout::CommunicatorSlot, completions) + i * sizeof(layout::CompletionEntry);
        std::memcpy(&value, slot + entry + field, sizeof(value));
        return value;
      };
      if (word(offsetof(layout::CompletionEntry, ticket)) == 0) continue;
      completions.push_back({.call_ns = word(offsetof(layout::CompletionEntry, call_ns)),
                             .start_ns = word(offsetof(layout::CompletionEntry, start_ns)),
                             .stop_ns = word(offsetof(layout::CompletionEntry, stop_ns)),
                             .delivered_ns = word(offsetof(layout::CompletionEntry, delivered_ns))});
    }
    return completions;
  }

  // By the distance of the clocks, of which the simulator's deliveries tell an upper bound, no call is later than the
  // start of its kernel. Their median: the simulator's threads are not at the same time, so that single ones may be
  // off.
  static void ExpectNoLateCall(const std::vector<CompletionTimes>& completions) {
    constexpr int64_t kSlackNs = 5000;  // drift of the GPU's clock in half a second, and units of 1024 ns in handles
    if (completions.empty()) return;
    std::vector<int64_t> distances_ns;
    for (const CompletionTimes& times : completions) distances_ns.push_back(times.delivered_ns - times.stop_ns);
    std::ranges::sort(distances_ns);
    const int64_t median_ns = distances_ns[distances_ns.size() / 2];
    for (const CompletionTimes& times : completions) {
      ASSERT_LE(times.call_ns - times.start_ns, median_ns + kSlackNs);
    }
  }

  void ExpectNoWrongCallTime() const {
    for (const auto& file : std::filesystem::directory_iterator(segments_->path())) {
      std::ifstream segment(file.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(segment), {}};
      for (size_t at = sizeof(layout::SegmentHeader); at + sizeof(layout::CommunicatorSlot) <= bytes.size();
           at += sizeof(layout::CommunicatorSlot)) {
        ExpectNoLateCall(CompletionsIn(bytes.data() + at));
      }
    }
  }

  void ExpectExactCounts() const {
    ForEachFunction([](const CommunicatorSnapshot& communicator, Function function, const json& account, const auto&) {
      const FunctionSnapshot& recorded = communicator.functions[static_cast<size_t>(function)];
      EXPECT_EQ(recorded.calls, account["calls"].get<uint64_t>());
      for (size_t i = 0; i < recorded.sizes.size(); ++i) {
        const json size = account["sizes"].value(std::to_string(kSizeClassBounds[i]), json::object());
        EXPECT_EQ(recorded.sizes[i].operations, size.value("operations", uint64_t{0})) << "size class " << i;
        EXPECT_EQ(recorded.sizes[i].bytes, size.value("bytes", uint64_t{0})) << "size class " << i;
      }
    });
  }

  void ExpectOnlyTrueDurations() {
    std::map<uint64_t, uint64_t> wrong;  // by rank
    std::string text;
    ForEachFunction([&](const CommunicatorSnapshot& communicator, Function function, const json&,
                        const TrueOperations& operations) {
      const FunctionSnapshot& recorded = communicator.functions[static_cast<size_t>(function)];
      figures_.timed += Timed(recorded);
      for (const auto& [bucket, count] : Unexplained(recorded, operations.durations_ns, GetParam().row->tolerance_ns)) {
        wrong[communicator.rank] += count;
        figures_.wrong += count;
        const double bound = DurationBuckets::UpperBound(std::min(bucket, DurationBuckets::kBoundCount - 1));
        text += "\nrank " + std::to_string(communicator.rank) + ": " + std::to_string(count) + " of " +
                std::to_string(recorded.duration[static_cast<size_t>(bucket)]) + " durations of " +
                std::string(TraitsOf(function).name) + " up to " + std::to_string(bound * 1e6) + " us; " +
                std::to_string(Timed(recorded)) + " of " + std::to_string(operations.durations_ns.size()) + " timed";
      }
    });
    const auto too_many =
        std::find_if(wrong.begin(), wrong.end(), [](const auto& w) { return w.second > GetParam().row->most_wrong; });
    if (too_many != wrong.end()) {
      ADD_FAILURE() << too_many->second << " wrong durations on rank " << too_many->first << "; all of them:" << text;
    }
  }

  // By a cause, or by its communicator, which says that it is not timed any more.
  void ExpectTheUntimedAccountedFor() const {
    uint64_t untimed = 0;
    bool has_untimed_communicator = false;
    ForEachFunction([&](const CommunicatorSnapshot& communicator, Function function, const json&,
                        const TrueOperations& operations) {
      const uint64_t timed = Timed(communicator.functions[static_cast<size_t>(function)]);
      EXPECT_LE(timed, operations.durations_ns.size());
      if (GetParam().row->rest == Rest::kIsTimed) {
        EXPECT_GE(timed, operations.unaffected * 9 / 10);
      }
      const bool says_so = communicator.timing_source == TimingSource::kNone;
      has_untimed_communicator |= says_so;
      untimed += says_so ? 0 : operations.durations_ns.size() - timed;
    });
    const uint64_t given_up = Losses([](const LossTraits& loss) { return loss.kind != LossKind::kUnmatched; });
    EXPECT_GE(given_up, untimed + (has_untimed_communicator ? 1 : 0)) << AllLosses();
    if (const char* reason = GetParam().row->reason) {
      EXPECT_GT(Losses([&](const LossTraits& loss) { return loss.reason == reason; }), 0u) << AllLosses();
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
        for (const json& function : communicator["functions"]) affected += function.value("affected", uint64_t{0});
      }
    }
    return affected;
  }

  std::optional<ScratchDirectory> segments_;  // of the latest job
  ScratchDirectory results_;
  json truth_;
  std::shared_ptr<const NodeSnapshot> snapshot_;
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
  std::printf("%s: %lu operations, %lu timed, %lu wrong%s\n", row.name, figures_.operations, figures_.timed,
              figures_.wrong, in_flight.c_str());
}

INSTANTIATE_TEST_SUITE_P(Rows, TimestampFault, testing::ValuesIn(Scenarios()), [](const auto& test) {
  return std::string(test.param.row->name) + "_v" + std::to_string(test.param.api_version);
});

}  // namespace
}  // namespace nccl_exporter
