// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/polled_channel.h"

#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::sim {
namespace {

class PolledChannelTest : public testing::Test {
 protected:
  // Reports read "a+100" and "a-150": the name, and the time of the work that was shown.
  void Wait(const std::string& name, uint64_t counter) {
    const auto note = [this](const std::string& text) {
      reports_ += (reports_.empty() ? "" : " ") + text;
    };
    channel_.Append(false,
                    {.counter = counter,
                     .start = [=](const WorkItem* shown,
                                  int64_t) { note(name + "+" + std::to_string(shown->start_ns)); },
                     .stop = [=](const WorkItem* shown,
                                 int64_t) { note(name + "-" + std::to_string(shown->stop_ns)); }},
                    0, queue_, faults_);
  }
  void Run(int64_t start_ns) { channel_.Run({start_ns, start_ns + 50}, 0, queue_, faults_); }

  std::atomic<bool> stop_asked_ = false;
  ClockMode clock_mode_{false, stop_asked_};
  Faults faults_;
  std::string reports_;  // written by the delivering thread only
  PolledChannel channel_;
  uint64_t counted_ = 0;
  EventQueue queue_{clock_mode_, [] {}, 0};
};

TEST_F(PolledChannelTest, ReportsWorkInTheOrderOfItsCounters) {
  Run(10000);
  Run(20000);
  Wait("a", ++counted_);
  Wait("b", ++counted_);
  queue_.Drain(0);
  EXPECT_EQ(reports_, "a+10000 a-10050 b+20000 b-20050");
}

TEST_F(PolledChannelTest, ShowsAHostThatIsBehindOlderWork) {
  Run(10000);
  Run(20000);  // the host does not count this one
  Run(30000);
  Wait("a", ++counted_);
  Wait("c", ++counted_);
  queue_.Drain(0);
  EXPECT_EQ(reports_, "a+10000 a-10050 c+20000 c-20050");
}

TEST_F(PolledChannelTest, LetsAHostThatIsAheadWaitForTheNextWork) {
  counted_ = 1;
  Run(10000);
  Wait("a", ++counted_);
  queue_.Drain(0);
  EXPECT_EQ(reports_, "");
  Run(20000);
  queue_.Drain(0);
  EXPECT_EQ(reports_, "a+20000 a-20050");
}

TEST_F(PolledChannelTest, SilencesWhatFollowsACounterThatNeverComes) {
  Run(10000);
  Run(20000);
  Wait("a", PolledWork::kNeverWritten);
  Wait("b", 2);
  queue_.Drain(0);
  EXPECT_EQ(reports_, "");
}

}  // namespace
}  // namespace nccl_exporter::sim
