// SPDX-License-Identifier: Apache-2.0
// The queue in memory and on disk: order, size, restarts, and directories that are wrong.
#include "exporter/otlp/request_queue.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter::otlp {
namespace {

class RequestQueueTest : public testing::TestWithParam<bool> {
 protected:
  std::string Directory() const { return GetParam() ? scratch_.path() : ""; }

  // Takes the oldest one out.
  static std::string Taken(RequestQueue& queue) {
    const auto request = queue.Oldest();
    if (!request) return "";
    queue.Remove(request->number);
    return request->body;
  }

  collector::ScratchDirectory scratch_;
};

TEST_P(RequestQueueTest, GivesTheOldestFirst) {
  RequestQueue queue(Directory(), 100);
  EXPECT_FALSE(queue.Oldest());
  for (const char* const body : {"one", "two", "three"}) EXPECT_EQ(queue.Add(body), "");
  EXPECT_EQ(queue.count(), 3u);
  EXPECT_EQ(queue.bytes(), 11u);
  EXPECT_EQ(queue.Oldest()->body, "one") << "it stays until it is removed";
  for (const char* const body : {"one", "two", "three", ""}) EXPECT_EQ(Taken(queue), body);
  EXPECT_EQ(queue.bytes(), 0u);
  EXPECT_EQ(queue.dropped(), 0u);
}

TEST_P(RequestQueueTest, DropsTheOldestBeyondItsSize) {
  RequestQueue queue(Directory(), 10);
  queue.Add("aaaa");
  const uint64_t first = queue.Oldest()->number;
  queue.Add("bbbb");
  EXPECT_EQ(queue.Add("cccc"), "the queue is full, and the oldest requests are dropped");
  EXPECT_EQ(queue.dropped(), 1u);
  queue.Remove(first);  // its push has ended meanwhile
  EXPECT_EQ(queue.count(), 2u);
  EXPECT_NE(queue.Add(std::string(11, 'x')), "");
  EXPECT_EQ(queue.dropped(), 2u);
  EXPECT_EQ(Taken(queue), "bbbb");
  EXPECT_EQ(Taken(queue), "cccc");
}

INSTANTIATE_TEST_SUITE_P(InMemoryAndOnDisk, RequestQueueTest, testing::Bool());

TEST(RequestQueueOnDiskTest, OutlivesItsProcess) {
  const collector::ScratchDirectory scratch;
  {
    RequestQueue queue(scratch.path(), 100);
    for (const char* const body : {"one", "two", "three"}) queue.Add(body);
  }
  std::ofstream(scratch.path() + "/unfinished") << "cut";
  std::ofstream(scratch.path() + "/7.otlp") << "of somebody else";
  RequestQueue queue(scratch.path(), 100);
  EXPECT_EQ(queue.count(), 3u);
  EXPECT_EQ(queue.bytes(), 11u);
  queue.Add("four");
  for (const char* const body : {"one", "two", "three", "four"}) {
    const auto request = queue.Oldest();
    EXPECT_EQ(request->body, body);
    queue.Remove(request->number);
  }
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/7.otlp"));
}

TEST(RequestQueueOnDiskTest, ASmallerSizeHoldsFromTheNextRequest) {
  const collector::ScratchDirectory scratch;
  {
    RequestQueue queue(scratch.path(), 100);
    for (const char* const body : {"one", "two", "three"}) queue.Add(body);
  }
  RequestQueue queue(scratch.path(), 8);
  queue.Add("new");
  EXPECT_EQ(queue.bytes(), 8u);
  EXPECT_EQ(queue.dropped(), 2u);
}

TEST(RequestQueueOnDiskTest, FilesThatAreGoneOrEmptyAreDropped) {
  const collector::ScratchDirectory scratch;
  RequestQueue queue(scratch.path(), 100);
  for (const char* const body : {"one", "two", "three"}) queue.Add(body);
  std::filesystem::remove(scratch.path() + "/00000000000000000001.otlp");
  std::ofstream(scratch.path() + "/00000000000000000002.otlp");  // truncates it
  EXPECT_EQ(queue.Oldest()->body, "three");
  EXPECT_EQ(queue.dropped(), 2u);
}

TEST(RequestQueueOnDiskTest, WhatCannotBeWrittenIsKeptInMemory) {
  const collector::ScratchDirectory scratch;
  const std::string directory = scratch.path() + "/queue";
  std::filesystem::create_directory(directory);
  RequestQueue queue(directory, 100);
  std::filesystem::remove(directory);
  EXPECT_NE(queue.Add("one").find("requests are kept in memory"), std::string::npos);
  EXPECT_EQ(queue.Oldest()->body, "one");
  EXPECT_EQ(queue.dropped(), 0u);
}

TEST(RequestQueueOnDiskTest, ADirectoryIsThereAndHasOneUser) {
  const collector::ScratchDirectory scratch;
  EXPECT_THROW(RequestQueue(scratch.path() + "/none", 100), std::runtime_error);
  const RequestQueue queue(scratch.path(), 100);
  EXPECT_THROW(RequestQueue(scratch.path(), 100), std::runtime_error);
}

}  // namespace
}  // namespace nccl_exporter::exporter::otlp
