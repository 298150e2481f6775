// SPDX-License-Identifier: Apache-2.0
// Test support: a requester as proto/trace_ring.h describes it, on the mapping of the process
// itself or on one of its own. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plugin/segment/atomics.h"
#include "proto/trace_ring.h"

namespace nccl_exporter::plugin {

class TraceRequester {
 public:
  explicit TraceRequester(trace_ring::File* file) : file_(file) {}

  struct Request {
    trace_ring::Level level = trace_ring::Level::kChannels;
    uint64_t begin_realtime_ns = 0;
    uint64_t end_realtime_ns = 0;
    uint64_t chunks = trace_ring::kFewestChunks;
    bool has_communicator = false;
    uint64_t communicator_id = 0;
  };
  void Ask(const Request& request) {
    trace_ring::ControlPage& page = file_->control;
    StoreRelaxed(page.level, static_cast<uint64_t>(request.level));
    StoreRelaxed(page.begin_realtime_ns, request.begin_realtime_ns);
    StoreRelaxed(page.end_realtime_ns, request.end_realtime_ns);
    StoreRelaxed(page.chunks, request.chunks);
    StoreRelaxed(page.has_communicator, request.has_communicator ? 1 : 0);
    StoreRelaxed(page.communicator_id, request.communicator_id);
    StoreRelease(page.generation, LoadRelaxed(page.generation) + 1);
  }
  bool IsAnswered() const {
    return LoadAcquire(file_->control.answered) == LoadRelaxed(file_->control.generation);
  }
  trace_ring::Answer answer() const {
    return static_cast<trace_ring::Answer>(LoadRelaxed(file_->control.answer));
  }
  uint64_t session() const { return LoadRelaxed(file_->control.session); }

  // Records that were written since the last call, by lane (slot, role), in the order of each
  // lane's chunks. Gives back chunks that were read to their end.
  using Records = std::map<std::pair<uint32_t, uint64_t>, std::vector<std::vector<uint64_t>>>;
  void Read(Records& records) {
    for (uint64_t i = 0; i < trace_ring::kMostChunks; ++i) {
      trace_ring::Chunk& chunk = file_->chunks[i];
      const uint64_t owner = LoadAcquire(chunk.owner);
      if (trace_ring::SessionOf(owner) != session() || session() == 0 ||
          trace_ring::RoleNumberOf(owner) >= trace_ring::kRoleCount)
        continue;
      uint64_t& at = read_[i];
      auto& lane = records[{trace_ring::SlotOf(owner), trace_ring::RoleNumberOf(owner)}];
      while (at < trace_ring::Chunk::kWords) {
        const uint64_t first = LoadAcquire(chunk.words[at]);
        const size_t words = trace_ring::WordsOf(trace_ring::TypeOf(first));
        if (words == 0 || at + words > trace_ring::Chunk::kWords) break;
        auto& record = lane.emplace_back();
        for (size_t w = 0; w < words; ++w) record.push_back(LoadRelaxed(chunk.words[at + w]));
        at += words;
      }
      if (LoadAcquire(chunk.closed_words) != 0 && at == LoadRelaxed(chunk.closed_words)) {
        at = 0;
        StoreRelease(chunk.owner, 0);
      }
    }
  }
  uint64_t Lost(uint32_t slot, trace_ring::Role role) const {
    return LoadRelaxed(file_->lost[slot][static_cast<size_t>(role)]);
  }

 private:
  trace_ring::File* file_;
  std::map<uint64_t, uint64_t> read_;  // words of each chunk
};

}  // namespace nccl_exporter::plugin
