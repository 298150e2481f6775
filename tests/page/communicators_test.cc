// SPDX-License-Identifier: Apache-2.0
// The list of communicators: order, filter, and links that keep the view.
#include <string>

#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

TEST_F(PageTest, EightyEightCommunicatorsFitFourScreensSortedByTrouble) {
  Show("many");
  EXPECT_LE(Evaluate("document.documentElement.scrollHeight").get<int>(), 4 * 900);
  EXPECT_EQ(Text("#shown"), "88 communicators");
  EXPECT_THAT(Text(kFirstRow), testing::StartsWith("fsdp: GPU 0-7"));
  EXPECT_THAT(
      Text(kFirstRow),
      testing::HasSubstr("hang: global rank 3 has not entered AllGather #325, for 2.5 min"));
  EXPECT_EQ(Texts("#communicator-list details").size(), 80u);
  EXPECT_EQ(Text("#alone-title"), "8 communicators of one rank");
  EXPECT_EQ(Texts("#other-list > details").size(), 5u) << "further findings that need no click";
  EXPECT_EQ(Text("#folded-title"), "2 further findings");
  EXPECT_EQ(Texts("#communicator-list .plot").size(), 0u) << "nothing is drawn for folded ones";
}

TEST_F(PageTest, JobsOfUsersAreApartAndEachHasItsOwnNumbers) {
  Show("elsewhere");
  EXPECT_EQ(Texts(".job > h3"), (json{"Job 4712 of user 1000", "Job 4713 of user 1001"}))
      << "that with a finding first";
  EXPECT_EQ(Texts(".job:nth-child(1) dd"), (json{"100 %", "–", "4 of 4", "100 %"}));
  // 40 AllGathers a second on each of two communicators, of 1.2 ms.
  EXPECT_EQ(Texts(".job:nth-child(2) dd"), (json{"10 %", "138 GB/s", "–", "100 %"}));
  EXPECT_EQ(Texts(".job:nth-child(1) .name"), (json{"mesh_dp: GPU 0-3", "mesh_tp: GPU 0-3"}));
  EXPECT_EQ(Texts(".job:nth-child(2) .name"),
            (json{"tp: GPU 4, 5", "tp: GPU 6, 7", "world: GPU 4-7"}));
  EXPECT_EQ(Texts("#communicator-list .kind"),
            (json{"data parallel", "tensor parallel", "tensor parallel", "tensor parallel",
                  "whole job"}));
  Show("elsewhere", "#filter=user+1001");
  EXPECT_EQ(Texts(".job > h3"), (json{"Job 4713 of user 1001"}));
  EXPECT_EQ(Text(".job dd"), "10 %") << "the filter changes no number";
}

TEST_F(PageTest, TilesSayWhatIsLostAndWhatIsNotKnown) {
  Show("straggler");
  EXPECT_EQ(Texts(".tiles dt"), (json{"Time in NCCL", "Bus bandwidth, waiting included",
                                      "GPUs that wait", "Operations timed"}));
  EXPECT_EQ(Text(".tiles div:nth-child(3) dd"), "0.8 of 8");
  Show("hang");
  EXPECT_EQ(Texts(".tiles dd"), (json{"88 %", "–", "7 of 8", "100 %"}));
  Evaluate(
      "(() => { const node = nodeInState('untimed'); for (const item of "
      "node.communicators[0].collectives) Object.assign(item, { timed_operations: 0 }).recent = "
      "{ ...item.recent, duration_seconds: null, bus_bytes_per_second: null }; "
      "window.fetch = async () => new Response(JSON.stringify(node)); })()");
  EXPECT_TRUE(exporter::Eventually([&] {
    return Texts(".tiles dd") == (json{"–", "–", "–", "0 %"});
  })) << Texts(".tiles dd");
  Evaluate(
      "(() => { const node = nodeInState('straggler'); for (const comm of node.communicators) "
      "comm.waiting = null; window.fetch = async () => new Response(JSON.stringify(node)); })()");
  EXPECT_TRUE(exporter::Eventually([&] { return Text(".tiles div:nth-child(3) dd") == "–"; }))
      << "there is nobody to compare with";
}

// A name of no kind, or of two, says none.
TEST_F(PageTest, KindsOfParallelismAreThoseOfNames) {
  Show("quiet");
  for (const auto& [name, kind] : {std::pair{"TENSOR_MODEL_PARALLEL_GROUP", "tensor parallel"},
                                   {"mesh_dp_shard", "data parallel"},
                                   {"ep:0", "expert parallel"},
                                   {"pp12", "pipeline parallel"},
                                   {"cp", "context parallel"},
                                   {"TENSOR_AND_DATA_PARALLEL_GROUP", ""},
                                   {"default_pg", "whole job"},
                                   {"stp", ""},
                                   {"", ""}}) {
    EXPECT_EQ(
        Evaluate(std::string("import('./jobs.js').then(({ kindOf }) => kindOf({ comm_name: '") +
                 name + "' }))"),
        kind)
        << name;
  }
}

// Details are drawn in slices: each that is open has its turn, and what is folded before has none.
TEST_F(PageTest, AllThatAreOpenedAtOnceAreDrawn) {
  Show("quiet");
  Evaluate(
      "(() => { const rows = [...document.querySelectorAll('#communicator-list summary')]; "
      "for (const row of rows) row.click(); rows[2].click(); })()");
  const auto drawn = [&] { return Texts("#communicator-list .collective h3").size(); };
  EXPECT_TRUE(exporter::Eventually([&] { return drawn() == 6; })) << drawn();
  EXPECT_EQ(Texts("#communicator-list details:nth-child(3) > *").size(), 1u) << "only its row";
}

TEST_F(PageTest, ShowsWhereNetworkTimeGoesOfRanksThatLeaveTheirNode) {
  Show("quiet");
  Evaluate(
      "(() => { const box = document.getElementById('filter'); box.value = 'pp gpu 3'; "
      "box.dispatchEvent(new Event('input')); })()");
  Click(kFirstRow);
  // "What network operations wait for, by rank"
  const std::string cells = "details[open] [aria-label^=What] tbody td";
  ASSERT_TRUE(exporter::Eventually([&] { return Texts(cells).size() == 12; }));
  EXPECT_EQ(Texts(cells), (json{"1", "960", "4.03 GB", "12 %", "3 %", "85 %", "221 µs", "480",
                                "2.01 GB", "25 %", "70 %", "5 %"}))
      << "the other rank is not timed";
}

// Regression: shares of the time hid a slow adapter, since its neighbours wait as long.
TEST_F(PageTest, ShowsHowLongAByteIsInTheNetworkBesideThoseOfOtherRanks) {
  Show("adapter");
  Click(kFirstRow);
  const std::string cells = "details[open] [aria-label^=What] tbody td:nth-child(7)";
  ASSERT_TRUE(exporter::Eventually([&] { return Texts(cells).size() == 4; }));
  EXPECT_EQ(Texts(cells), (json{"52.1 µs", "52.1 µs", "52.1 µs", "208 µs, 4.0 times the median"}));
}

TEST_F(PageTest, FiltersByNameJobRankGpuAndPid) {
  Show("quiet");
  const auto left = [&](const std::string& filter) {
    Evaluate("(() => { const box = document.getElementById('filter'); box.value = '" + filter +
             "'; box.dispatchEvent(new Event('input')); })()");
    return Texts("#communicator-list .name");
  };
  EXPECT_EQ(left("gpu 3"), (json{"pp: GPU 3, 7", "tp: GPU 0-3", "world: GPU 0-7"}));
  EXPECT_EQ(left("tp"), (json{"tp: GPU 0-3", "tp: GPU 4-7"}));
  EXPECT_EQ(left("tp gpu 3"), (json{"tp: GPU 0-3"}));
  EXPECT_EQ(left("rank 7"), (json{"world: GPU 0-7"}));
  EXPECT_EQ(left("pid 5833"), (json{"pp: GPU 3, 7", "tp: GPU 4-7", "world: GPU 0-7"}));
  EXPECT_EQ(left("job 4712").size(), 7u);
  EXPECT_EQ(left("user 1000").size(), 7u);
  EXPECT_EQ(left("tensor").size(), 2u);
  EXPECT_EQ(left("job 47").size(), 0u);
  EXPECT_EQ(Text("#shown"), "0 of 12 communicators");
}

TEST_F(PageTest, ALinkShowsTheSameView) {
  Show("quiet");
  Evaluate(
      "(() => { const box = document.getElementById('filter'); box.value = 'gpu 3'; "
      "box.dispatchEvent(new Event('input')); const sort = document.getElementById('sort'); "
      "sort.value = 'name'; sort.dispatchEvent(new Event('change')); })()");
  Click("#communicator-list details:nth-child(2) summary");
  ASSERT_TRUE(exporter::Eventually([&] {
    return Evaluate("location.hash").get<std::string>().find("open=") != std::string::npos;
  }));
  const std::string hash = Evaluate("location.hash");
  EXPECT_THAT(hash, testing::StartsWith("#filter=gpu+3&sort=name&open="));
  Show("quiet", hash);
  EXPECT_EQ(Texts("#communicator-list .name"),
            (json{"pp: GPU 3, 7", "tp: GPU 0-3", "world: GPU 0-7"}));
  EXPECT_THAT(Text("details.communicator[open] summary"), testing::StartsWith("tp: GPU 0-3"));
  EXPECT_EQ(Evaluate("document.getElementById('filter').value"), "gpu 3");
  EXPECT_EQ(Evaluate("document.getElementById('sort').value"), "name");
  EXPECT_EQ(Evaluate("location.hash"), hash);
}

}  // namespace
}  // namespace nccl_exporter
