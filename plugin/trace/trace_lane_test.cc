// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <thread>
#include <vector>

#include "plugin/testing/trace_session_fixture.h"
#include "plugin/trace/trace_session.h"

namespace nccl_exporter::plugin {
namespace {

using trace_ring::Role;

class TraceLaneTest : public TraceSessionTest {};

std::vector<uint64_t> ChannelsOf(const TraceRequester::Records& records, uint32_t slot, Role role) {
  std::vector<uint64_t> starts;
  const auto lane = records.find({slot, static_cast<uint64_t>(role)});
  if (lane == records.end()) return starts;
  for (const auto& record : lane->second) {
    EXPECT_EQ(record.size(), 3u);
    EXPECT_EQ(record[2], record[1] + 1) << "whole";
    starts.push_back(record[1]);
  }
  return starts;
}

TEST_F(TraceLaneTest, WritesRecordsOfAllSizesThatAReaderFindsOnceInTheirOrder) {
  AnswerTo(Channels(16));
  TraceLane lane;
  lane.Open(9, Role::kCaller, &session_);
  TraceRequester::Records records;
  std::vector<size_t> sizes;
  for (uint64_t i = 1; i <= 20'000; ++i) {
    if (i % 3 == 0) {
      lane.Write(trace_ring::MakeOperation(1, i, 2, i, i, i));
    } else if (i % 3 == 1) {
      lane.Write(trace_ring::MakeChannel(1, i, i, i));
    } else {
      lane.Write(trace_ring::MakeStep(1, i, {i, 0, 0, 0}));
    }
    sizes.push_back(i % 3 == 0 ? 4 : i % 3 == 1 ? 3 : 6);
    if (i % 500 == 0) requester_.Read(records);
  }
  requester_.Read(records);
  const auto& lane_records = records.at({9, 0});
  EXPECT_EQ(requester_.Lost(9, Role::kCaller), 0u);
  ASSERT_EQ(lane_records.size(), sizes.size());
  // Chunks are read by their place, so an order holds within each only.
  std::vector<uint64_t> numbers;
  for (const auto& record : lane_records)
    numbers.push_back(record.size() == 4 ? record[1] : record[1]);
  std::ranges::sort(numbers);
  for (uint64_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i + 1);
}

TEST_F(TraceLaneTest, CountsWhatTheRingHasNoRoomFor) {
  AnswerTo(Channels(16));
  TraceLane lanes[2];
  lanes[0].Open(1, Role::kProgress, &session_);
  lanes[1].Open(2, Role::kProgress, &session_);
  constexpr uint64_t kRecords = 10'000;
  for (uint64_t i = 0; i < kRecords; ++i) {
    for (TraceLane& lane : lanes) lane.Write(trace_ring::MakeChannel(1, 1, i, i + 1));
  }
  TraceRequester::Records records;
  requester_.Read(records);
  uint64_t written = 0;
  for (const uint32_t slot : {1u, 2u}) {
    const std::vector<uint64_t> starts = ChannelsOf(records, slot, Role::kProgress);
    EXPECT_EQ(starts.size() + requester_.Lost(slot, Role::kProgress), kRecords) << slot;
    written += starts.size();
  }
  EXPECT_EQ(written, 16u * (trace_ring::Chunk::kWords / 3)) << "all chunks are full";
  requester_.Read(records);  // gives them back
  const uint64_t lost = requester_.Lost(1, Role::kProgress);
  constexpr uint64_t kMore = 100;
  for (uint64_t i = 0; i < kMore; ++i)
    lanes[0].Write(trace_ring::MakeChannel(1, 1, kRecords + i, kRecords + i + 1));
  records.clear();
  requester_.Read(records);
  const std::vector<uint64_t> starts = ChannelsOf(records, 1, Role::kProgress);
  EXPECT_GT(starts.size(), kMore / 2) << "a chunk is looked for again soon";
  EXPECT_EQ(starts.size() + requester_.Lost(1, Role::kProgress) - lost, kMore);
}

TEST_F(TraceLaneTest, ThreadsOfOneLaneWriteEachRecordOnce) {
  AnswerTo(Channels(2048));
  TraceLane lane;
  lane.Open(5, Role::kProgress, &session_);
  constexpr uint64_t kThreads = 4, kEach = 50'000;
  std::vector<std::thread> threads;
  std::atomic<uint64_t> running{kThreads};
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const uint64_t number = t * kEach + i;
        lane.Write(trace_ring::MakeChannel(1, 1, number, number + 1));
      }
      running.fetch_sub(1);
    });
  }
  TraceRequester::Records records;
  while (running.load() != 0) requester_.Read(records);
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 2; ++i) requester_.Read(records);
  std::vector<uint64_t> starts = ChannelsOf(records, 5, Role::kProgress);
  EXPECT_EQ(starts.size() + requester_.Lost(5, Role::kProgress), kThreads * kEach);
  EXPECT_GT(starts.size(), kEach);
  std::ranges::sort(starts);
  EXPECT_EQ(std::ranges::adjacent_find(starts), starts.end()) << "each once";
}

TEST_F(TraceLaneTest, TheNextRequestHasTheWholeRing) {
  TraceLane lane;
  lane.Open(5, Role::kProgress, &session_);
  for (uint64_t round = 1; round <= 100; ++round) {
    AnswerTo(Channels(16));
    EXPECT_EQ(requester_.session(), round);
    for (uint64_t i = 0; i < 16 * 170; ++i) lane.Write(trace_ring::MakeChannel(1, 1, i, i + 1));
    ASSERT_EQ(requester_.Lost(5, Role::kProgress), 0u) << "its requester was killed before it read";
  }
}

}  // namespace
}  // namespace nccl_exporter::plugin
