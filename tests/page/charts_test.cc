// SPDX-License-Identifier: Apache-2.0
// Charts: axes, the cursor, and what the numbers beside them mean.
#include <string>

#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

TEST_F(PageTest, ChartsHaveAxesAndSayValueAndTimeAtTheCursor) {
  Show("straggler");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows("#communicator-list", "Mean time"));
  EXPECT_EQ(OfChart("Mean time",
                    "return [...chart.querySelectorAll('.ticks-y span, .ticks-x span')]"
                    ".map((tick) => tick.textContent);"),
            (json{"20.0 ms", "10.0 ms", "0", "23:36:19", "23:41:14 UTC"}));
  const std::string readout = "return chart.querySelector('.readout').textContent;";
  EXPECT_EQ(OfChart("Mean time", readout), "now 10.9 ms");
  EXPECT_EQ(OfChart("Mean time", "field.focus(); " + readout), "23:41:14 UTC: 10.9 ms");
  EXPECT_EQ(OfChart("Mean time",
                    "field.dispatchEvent(new KeyboardEvent('keydown', { key: "
                    "'ArrowLeft', cancelable: true })); " +
                        readout),
            "23:41:09 UTC: 10.9 ms");
  EXPECT_EQ(OfChart("Mean time", "return field.getAttribute('aria-valuetext');"),
            "23:41:09 UTC: 10.9 ms");
  EXPECT_EQ(OfChart("Mean time",
                    "const box = field.getBoundingClientRect(); field.dispatchEvent(new "
                    "PointerEvent('pointermove', { clientX: box.left + 1, clientY: box.top + 5 "
                    "})); " +
                        readout),
            "23:36:19 UTC: 1.20 ms")
      << "the chart begins where the history begins";
  // Row 5 of 8, in the newest step.
  EXPECT_EQ(OfChart("Who waits",
                    "const box = field.getBoundingClientRect(); field.dispatchEvent(new "
                    "PointerEvent('pointermove', { clientX: box.right - 1, clientY: box.top + "
                    "box.height * 5.5 / 8 })); " +
                        readout),
            "23:41:14 UTC: rank 5 waits 0 % of the time");
  EXPECT_EQ(OfChart("Who waits",
                    "field.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp', "
                    "cancelable: true })); " +
                        readout),
            "23:41:14 UTC: rank 4 waits 11 % of the time");
}

// In a hang the newest value is that of the last operation that ended.
TEST_F(PageTest, AValueOfThePastIsNotCalledNow) {
  Show("hang");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows("#communicator-list", "Mean time"));
  EXPECT_EQ(OfChart("Mean time", "return chart.querySelector('.readout').textContent;"),
            "at 23:38:44 1.13 ms");
}

TEST_F(PageTest, TheRowOfTheRankThatOthersWaitForStaysEmpty) {
  Show("straggler");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows("#communicator-list", "Who waits"));
  EXPECT_EQ(OfChart("Who waits",
                    "const map = chart.querySelector('canvas'); return [0, 1, 2, 3, 4, 5, 6, 7]"
                    ".map((row) => map.getContext('2d').getImageData(map.width - 1, row, 1, 1)"
                    ".data[3] > 50);"),
            (json{true, true, true, true, true, false, true, true}));
  EXPECT_EQ(Texts(".ticks-y .culprit"), json{"rank 5"});
  Click("#communicator-list details:nth-child(2) summary");
  EXPECT_TRUE(exporter::Eventually([&] { return Texts(".collective h3").size() == 2; }));
  EXPECT_EQ(Texts(".plot.ranks").size(), 1u) << "none where the daemon does not know it";
}

TEST_F(PageTest, TransferAndWaitingAreTwoNumbersAndRatesAreThoseOfOneRank) {
  Show("straggler");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows(".collective", "AllReduce"));
  const std::string facts = Text(".collective dl");
  for (const char* part : {"40 /s on each of 8 ranks", "transfer, of the fastest rank1.20 ms",
                           "waiting, on average9.80 ms"})
    EXPECT_THAT(facts, testing::HasSubstr(part));
  EXPECT_THAT(facts, testing::Not(testing::HasSubstr("bandwidth")));
  Click("#communicator-list details:nth-child(2) summary");
  EXPECT_TRUE(exporter::Eventually([&] { return Texts(".collective dl").size() == 2; }));
  EXPECT_THAT(Texts(".collective dl")[1].get<std::string>(),
              testing::HasSubstr("bus bandwidth, waiting included138 GB/s"));
}

}  // namespace
}  // namespace nccl_exporter
