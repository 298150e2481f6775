// SPDX-License-Identifier: Apache-2.0
// Test support: a session over a file of its own, and its requester.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "plugin/testing/trace_requester.h"
#include "plugin/trace/trace_session.h"

namespace nccl_exporter::plugin {

inline constexpr uint64_t kSecond = 1'000'000'000;

// A file between two pages of which every access ends the test.
class GuardedFile {
 public:
  GuardedFile() {
    auto* const all = static_cast<char*>(mmap(nullptr, kPage + sizeof(trace_ring::File) + kPage,
                                              PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(all + kPage, sizeof(trace_ring::File), PROT_READ | PROT_WRITE);
    file_ = reinterpret_cast<trace_ring::File*>(all + kPage);
  }
  ~GuardedFile() {
    munmap(reinterpret_cast<char*>(file_) - kPage, kPage + sizeof(trace_ring::File) + kPage);
  }
  GuardedFile(const GuardedFile&) = delete;
  GuardedFile& operator=(const GuardedFile&) = delete;

  trace_ring::File* get() const { return file_; }
  trace_ring::File* operator->() const { return file_; }
  // From then on a write behind the first chunks ends the test as well.
  void Protect(uint64_t chunks) {
    mprotect(&file_->chunks[chunks], (trace_ring::kMostChunks - chunks) * trace_ring::kChunkBytes,
             PROT_READ);
  }

 private:
  static constexpr size_t kPage = 4096;
  static_assert(sizeof(trace_ring::File) % kPage == 0);
  trace_ring::File* file_;
};

class TraceSessionTest : public testing::Test {
 protected:
  TraceSessionTest() { session_.Open(file_.get()); }

  // Realtime that many nanoseconds from now.
  static uint64_t In(int64_t ns) {
    return static_cast<uint64_t>(static_cast<int64_t>(ReadClock(CLOCK_REALTIME)) + ns);
  }
  static TraceRequester::Request Channels(uint64_t chunks = 64) {
    return {.begin_realtime_ns = In(0), .end_realtime_ns = In(10 * kSecond), .chunks = chunks};
  }
  trace_ring::Answer AnswerTo(const TraceRequester::Request& request) {
    requester_.Ask(request);
    EXPECT_FALSE(session_.IsSettled());
    session_.Take(NowNs());
    EXPECT_TRUE(requester_.IsAnswered());
    return requester_.answer();
  }
  trace_ring::Level LevelNow(uint64_t communicator = 1, int64_t in_ns = 0) const {
    return session_.LevelOf(NowNs() + static_cast<uint64_t>(in_ns), communicator);
  }

  GuardedFile file_;
  TraceSession session_{};
  TraceRequester requester_{file_.get()};
};

}  // namespace nccl_exporter::plugin
