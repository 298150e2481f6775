// SPDX-License-Identifier: Apache-2.0
// Label sets: made again, kept, and forgotten.
#include "exporter/series/labels/label_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "exporter/series/labels/series_labels.h"
#include "exporter/testing/example_snapshot.h"

namespace {

// The number of allocations that still succeed; below 0: all.
int allocations_left = -1;

}  // namespace

// Not inlined: the compiler would see malloc() behind new, and complain.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace nccl_exporter::exporter {
namespace {

TEST(LabelCacheTest, MakesWhatSeriesLabelsSayAndNothingTwice) {
  const auto snapshot = ExampleSnapshot();
  LabelCache cache;
  for (int scrape = 0; scrape < 3; ++scrape) {
    const uint64_t made_before = cache.made();
    for (const collector::ProcessSnapshot& process : snapshot->processes) {
      EXPECT_EQ(cache.OfProcess(process)->labels(), ProcessLabels(process));
      EXPECT_EQ(cache.OfOthers(process)->labels(), OtherCommunicatorLabels(process));
      uint32_t slot = 0;
      for (collector::CommunicatorSnapshot communicator : process.communicators) {
        communicator.slot = slot++;
        const CommunicatorLabelSets& sets = cache.Of(process, communicator);
        EXPECT_EQ(sets.series->labels(), CommunicatorLabels(process, communicator));
        EXPECT_EQ(sets.communicator_info->labels(), CommunicatorInfoLabels(communicator));
        EXPECT_EQ(sets.rank_info->labels(), RankInfoLabels(process, communicator));
      }
    }
    EXPECT_EQ(cache.made() == made_before, scrape > 0);
    cache.Sweep();
  }
}

// The writer of a segment chooses its name.
TEST(LabelCacheTest, TellsProcessesApartByTheirFilesWhateverTheirNames) {
  collector::ProcessSnapshot first = EmptyProcess(1), second = EmptyProcess(2);
  second.segment = first.segment;
  const collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  LabelCache cache;
  EXPECT_EQ(cache.OfProcess(first)->labels(), ProcessLabels(first));
  EXPECT_EQ(cache.OfProcess(second)->labels(), ProcessLabels(second));
  first.identity = {{"SLURM_JOB_ID", "7"}};
  EXPECT_EQ(cache.Of(first, communicator).series->labels(),
            CommunicatorLabels(first, communicator));
  EXPECT_EQ(cache.Of(second, communicator).series->labels(),
            CommunicatorLabels(second, communicator));
}

std::string UidOf(const SharedLabels& labels) {
  for (const Label& label : labels->labels()) {
    if (label.name == "uid") return label.value;
  }
  return "";
}

// Regression: the first user who named a communicator or a process had no label `uid`, and neither
// had a copy with another pod.
TEST(LabelCacheTest, EverySeriesOfAProcessTellsItsUserWhoeverCameFirst) {
  collector::ProcessSnapshot victim = EmptyProcess(1), stranger = EmptyProcess(1);
  victim.uid = 1002;
  stranger.uid = 1001;
  stranger.file.inode = 99;
  stranger.identity = {{"POD_NAME", "x"}};
  const collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  LabelCache cache;
  for (const collector::ProcessSnapshot& process : {stranger, victim}) {
    const std::string uid = std::to_string(process.uid);
    EXPECT_EQ(UidOf(cache.Of(process, communicator).series), uid);
    EXPECT_EQ(UidOf(cache.OfProcess(process)), uid);
    EXPECT_EQ(UidOf(cache.OfOthers(process)), uid);
  }
}

TEST(LabelCacheTest, LabelsOfTheSiteCostNoUserAnything) {
  collector::ProcessSnapshot process = EmptyProcess(1);
  const collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  // As many as the first look takes.
  LabelCache cache({}, {.at_once = 3, .per_minute = 0}, {.at_once = 3, .per_minute = 0});
  for (int reload = 0; reload < 1000; ++reload) {
    process.site_labels = {{"team", std::to_string(reload)}};
    for (int scrape = 0; scrape < 2; ++scrape) {
      const CommunicatorLabelSets& sets = cache.Of(process, communicator);
      ASSERT_TRUE(sets.series && sets.communicator_info && sets.rank_info && sets.rank_names);
      ASSERT_EQ(sets.series->labels(), CommunicatorLabels(process, communicator)) << reload;
      ASSERT_EQ(cache.OfProcess(process)->labels(), ProcessLabels(process)) << reload;
      ASSERT_EQ(cache.OfOthers(process)->labels(), OtherCommunicatorLabels(process)) << reload;
      cache.Sweep();
    }
  }
  EXPECT_LT(cache.held(), 20u);
  // A user who has spent his budget cannot have more by the site's doing.
  const collector::CommunicatorSnapshot other = EmptyCommunicator(2, 0);
  EXPECT_FALSE(cache.Of(process, other).series);
  process.site_labels = {{"team", "last"}};
  EXPECT_FALSE(cache.Of(process, other).series);
}

TEST(LabelCacheTest, LabelsOfTheSiteReplaceThoseOfTheJob) {
  collector::ProcessSnapshot process = EmptyProcess(1);
  for (const char* const name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    process.identity.emplace_back("label:" + std::string(name), "job");
  process.site_labels = {{"b", "site"}, {"i", "site"}};
  const Labels labels = UserLabels(process);
  ASSERT_EQ(labels.size(), 6u);
  EXPECT_EQ(labels[0].name, "a");
  EXPECT_EQ(labels[1].name, "c");
}

// Regression: labels that memory did not suffice for counted as made at the next scrape.
TEST(LabelCacheTest, MakesLabelsAnewThatMemoryDidNotSufficeFor) {
  collector::ProcessSnapshot process = EmptyProcess(1);
  process.host_name = std::string(100, 'h');
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.name = std::string(100, 'n');
  bool is_enough = false;
  for (int allocations = 0; !is_enough; ++allocations) {
    LabelCache cache;
    try {
      allocations_left = allocations;
      cache.Of(process, communicator);
      is_enough = true;
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    const CommunicatorLabelSets& sets = cache.Of(process, communicator);
    ASSERT_TRUE(sets.series && sets.communicator_info && sets.rank_info)
        << "after " << allocations << " allocations";
    ASSERT_TRUE(cache.OfProcess(process) && cache.OfOthers(process))
        << "after " << allocations << " allocations";
  }
}

TEST(LabelCacheTest, RemembersNoNamesOfACommunicatorThatChangesThemAtEveryScrape) {
  collector::ProcessSnapshot process = EmptyProcess(1);
  LabelCache cache;
  size_t held = 0;
  for (uint64_t scrape = 1; scrape <= 20; ++scrape) {
    process.host_name = std::to_string(scrape);
    cache.Of(process, EmptyCommunicator(scrape, 0));
    cache.OfProcess(process);
    cache.Sweep();
    if (scrape == 1) held = cache.held();
  }
  EXPECT_EQ(cache.held(), held);
}

// A process may change its variables at every scrape.
TEST(LabelCacheTest, VariablesTakeTheUsersBudgetOfInfoSets) {
  collector::ProcessSnapshot process = EmptyProcess(1);
  LabelCache cache({}, kNewSeriesSets, {.at_once = 2, .per_minute = 60});
  EXPECT_EQ(cache.OfEnvironment(process), nullptr);
  for (int scrape = 0; scrape < 4; ++scrape) {
    cache.Sweep();
    process.identity = {{"NCCL_*", "1~1a2b3c4d"}, {"NCCL_DEBUG", std::to_string(scrape)}};
    EXPECT_EQ(cache.OfEnvironment(process) != nullptr, scrape < 2) << scrape;
  }
  cache.Sweep();
  EXPECT_LE(cache.held(), 3u);
  cache.SetTime(60'000'000'000);
  ASSERT_NE(cache.OfEnvironment(process), nullptr) << "is tried again";
  EXPECT_EQ(cache.OfEnvironment(process)->labels(), EnvironmentLabels(process));
}

TEST(LabelCacheTest, FollowsEveryChangeOfACommunicator) {
  using Change = std::function<void(collector::CommunicatorSnapshot&)>;
  const std::vector<Change> changes{
      [](auto& c) { c.id = 2; },
      [](auto& c) { c.name = "n"; },
      [](auto& c) { c.rank = 5; },
      [](auto& c) { c.gpu_index = 6; },
      [](auto& c) { c.gpu_uuid = "u"; },
      [](auto& c) { c.pci_bus_id = "p"; },
      [](auto& c) { c.nodes = 7; },
      [](auto& c) { c.api_version = 3; },
      [](auto& c) { c.nccl_version = 23000; },
      [](auto& c) { c.timing_source = TimingSource::kNone; },
      [](auto& c) { c.timing_reason = TimingReason::kApiTooOld; },
  };
  const collector::ProcessSnapshot process = EmptyProcess(1);
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  LabelCache cache;
  cache.Of(process, communicator);
  for (const Change& change : changes) {
    change(communicator);
    const CommunicatorLabelSets& sets = cache.Of(process, communicator);
    EXPECT_EQ(sets.series->labels(), CommunicatorLabels(process, communicator));
    EXPECT_EQ(sets.communicator_info->labels(), CommunicatorInfoLabels(communicator));
    EXPECT_EQ(sets.rank_info->labels(), RankInfoLabels(process, communicator));
  }
}

TEST(LabelCacheTest, FollowsRanksThatAreNumberedAgain) {
  LabelCache cache;
  collector::ProcessSnapshot process = EmptyProcess(1);
  process.communicators = {EmptyCommunicator(1, 0)};
  process.numbers.global_rank = process.communicators[0].numbers.global_rank = 3;
  cache.Of(process, process.communicators[0]);
  cache.Sweep();
  process.numbers.global_rank = process.communicators[0].numbers.global_rank = 5;
  EXPECT_EQ(cache.OfProcess(process)->labels(), ProcessLabels(process));
  EXPECT_EQ(cache.Of(process, process.communicators[0]).rank_info->labels(),
            RankInfoLabels(process, process.communicators[0]));
}

TEST(LabelCacheTest, FollowsAProcessThatTookTheNameOfAnother) {
  LabelCache cache;
  collector::ProcessSnapshot process = EmptyProcess(1);
  const collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  cache.Of(process, communicator);
  cache.Sweep();
  process.identity = {{"SLURM_JOB_ID", "8"}};
  EXPECT_EQ(cache.Of(process, communicator).series->labels(),
            CommunicatorLabels(process, communicator));
  EXPECT_EQ(cache.OfProcess(process)->labels(), ProcessLabels(process));
}

TEST(LabelCacheTest, EqualSetsOfTwoProcessesAreOneObject) {
  LabelCache cache;
  const collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  const SharedLabels one = cache.Of(EmptyProcess(1), communicator).series;
  EXPECT_EQ(cache.Of(EmptyProcess(2), communicator).series, one);
}

TEST(LabelCacheTest, ForgetsWhatIsGone) {
  LabelCache cache;
  const collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  const std::weak_ptr<const LabelSet> set = cache.Of(EmptyProcess(1), communicator).series;
  cache.Sweep();
  EXPECT_FALSE(set.expired()) << "asked for since the last sweep";
  cache.Sweep();
  EXPECT_TRUE(set.expired());
  const uint64_t made_before = cache.made();
  cache.Of(EmptyProcess(1), communicator);
  EXPECT_GT(cache.made(), made_before);
}

}  // namespace
}  // namespace nccl_exporter::exporter
