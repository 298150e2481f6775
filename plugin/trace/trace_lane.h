// SPDX-License-Identifier: Apache-2.0
// Lanes of one communicator: where its records for a request go, a chunk after the other. Any
// thread, several at a time; no waiting, no allocation, no system call.
//
// A record claims its words by one fetch_add on the lane's word (session, chunk, offset):
//   1. The word's session is the one in force and the record fits into the chunk: the words are
//   this
//      thread's alone, and it stores them.
//   2. It does not fit: exactly one thread of a chunk finds an offset that was within it. It closes
//      the chunk, at that offset.
//   3. A thread without room tries for the lane's lock (TryLock). Under it, it takes a chunk and
//      stores the word anew. What others have added to the old word meanwhile was no claim: their
//      offsets were beyond the chunk, and they come to 3 as well.
//   4. No lock or no chunk: the record is lost, and counted.
// A thread that has slept since it loaded the session before adds to a word of the next one. It has
// claimed nothing, and leaves a gap: what lies behind it in that chunk is lost to the reader, which
// sees that.
//
// An offset cannot reach the bits above it: each thread adds to a full word once before it comes to
// 3, and the lock's holder stores the word anew.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/segment/atomics.h"
#include "plugin/trace/trace_session.h"
#include "proto/trace_ring.h"

namespace nccl_exporter::plugin {

class alignas(64) TraceLane {
 public:
  // For good: late events of a former communicator may be in it. All later calls are the same.
  void Open(uint32_t slot, trace_ring::Role role, TraceSession* session) {
    if (trace_.load(std::memory_order_relaxed) != nullptr) return;
    slot_ = slot;
    role_ = role;
    trace_.store(session, std::memory_order_release);
  }

  template <size_t kWords>
  void Write(const std::array<uint64_t, kWords>& record) {
    TraceSession* const trace = trace_.load(std::memory_order_acquire);
    const uint64_t session = trace != nullptr ? trace->session() : 0;
    if (session == 0) return;  // the request is over
    uint64_t place = 0;
    if (Claim(*trace, session, kWords, &place) || ClaimInNewChunk(*trace, session, kWords, &place))
      return trace->Store(ChunkOf(place), OffsetOf(place), record);
    trace->CountLost(slot_, role_);
  }

 private:
  // Session (24 bits) | chunk (12) | offset (28).
  static constexpr int kChunkShift = 28;
  static constexpr int kSessionShift = 40;
  static_assert(trace_ring::kMostChunks == 1u << (kSessionShift - kChunkShift));
  static constexpr uint64_t kFull = trace_ring::Chunk::kWords + 1;
  static uint64_t SessionOf(uint64_t word) { return word >> kSessionShift; }
  static uint64_t ChunkOf(uint64_t word) {
    return word >> kChunkShift & (trace_ring::kMostChunks - 1);
  }
  static uint64_t OffsetOf(uint64_t word) { return word & ((uint64_t{1} << kChunkShift) - 1); }
  static uint64_t Word(uint64_t session, uint64_t chunk, uint64_t offset) {
    return session << kSessionShift | chunk << kChunkShift | offset;
  }

  bool Claim(TraceSession& trace, uint64_t session, uint64_t words, uint64_t* place) {
    *place = AddRelaxed(word_, words);
    if (SessionOf(*place) != session) return false;
    const uint64_t offset = OffsetOf(*place);
    if (offset + words <= trace_ring::Chunk::kWords) return true;
    if (offset <= trace_ring::Chunk::kWords) trace.Close(ChunkOf(*place), offset);
    return false;
  }
  [[gnu::noinline]] bool ClaimInNewChunk(TraceSession& trace, uint64_t session, uint64_t words,
                                         uint64_t* place);

  AtomicU64 word_{0};
  std::atomic<TraceSession*> trace_{nullptr};
  std::atomic<bool> is_taking_chunk_{false};
  trace_ring::Role role_ = trace_ring::Role::kCaller;
  uint32_t slot_ = 0;
};

class TraceLanes {
 public:
  // Under the process's lock, while no event can carry the new context yet. A slot's number and the
  // session are the same at every call.
  void Open(uint32_t slot, uint64_t communicator_id, TraceSession* session) {
    StoreRelaxed(communicator_id_, communicator_id);
    caller_.Open(slot, trace_ring::Role::kCaller, session);
    progress_.Open(slot, trace_ring::Role::kProgress, session);
  }
  // API v1 to v3: with the first operation.
  void LearnIdentity(uint64_t communicator_id) { StoreRelaxed(communicator_id_, communicator_id); }
  uint64_t communicator_id() const { return LoadRelaxed(communicator_id_); }

  TraceLane& caller() { return caller_; }      // threads that announce operations
  TraceLane& progress() { return progress_; }  // threads that report their parts

 private:
  TraceLane caller_;
  TraceLane progress_;
  AtomicU64 communicator_id_{0};
};

}  // namespace nccl_exporter::plugin
