// SPDX-License-Identifier: Apache-2.0
// Lane of one communicator: where its records for a request go, a chunk after the other. Any
// thread, several at a time; no waiting, no allocation, no system call.
//
// The lane's word is session, chunk, and offset of the next record in it.
//   1. A record claims its words by a compare-and-swap of that word, and only if the word's session
//      is the one in force and the record fits into the chunk. So claims never overlap.
//   2. Without room a thread takes a chunk under the lane's TryLock, and swaps the word for one
//      with the new chunk. The old word says where the old chunk ends: it is closed there.
//   3. No lock, no chunk, or too many other threads at 1: the record is lost, and counted, unless
//      the session is over meanwhile.
// A thread may sleep between claim and store. The reader stops at its place in the chunk, which
// stays this lane's until the record is there, or another request takes the ring.
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
    if (LoadRelaxed(trace_) != nullptr) return;
    slot_ = slot;
    role_ = role;
    StoreRelease(trace_, session);
  }

  template <size_t kWords>
  void Write(const std::array<uint64_t, kWords>& record) {
    TraceSession* const trace = LoadAcquire(trace_);
    const uint64_t session = trace != nullptr ? trace->session() : 0;
    if (session == 0) return;  // the request is over
    uint64_t place = 0;
    const bool is_claimed =
        Claim(session, kWords, &place) || ClaimInNewChunk(*trace, session, kWords, &place);
    if (trace->session() != session) return;
    if (!is_claimed) return trace->CountLost(slot_, role_);
    trace->Store(ChunkOf(place), OffsetOf(place), record);
  }

 private:
  // Session (24 bits) | chunk (12) | offset (28).
  static constexpr int kChunkShift = 28;
  static constexpr int kSessionShift = 40;
  static_assert(trace_ring::kMostChunks == 1u << (kSessionShift - kChunkShift));
  // An offset without room: there is no chunk.
  static constexpr uint64_t kFull = trace_ring::Chunk::kWords + 1;
  // Where the ring is full, so many records are lost before a chunk is looked for again: the look
  // meets cold memory.
  static constexpr uint32_t kSkippedRecords = 15;
  // Each fails only if another thread has claimed.
  static constexpr int kAttempts = 4;
  static uint64_t SessionOf(uint64_t word) { return word >> kSessionShift; }
  static uint64_t ChunkOf(uint64_t word) {
    return word >> kChunkShift & (trace_ring::kMostChunks - 1);
  }
  static uint64_t OffsetOf(uint64_t word) { return word & ((uint64_t{1} << kChunkShift) - 1); }
  static uint64_t Word(uint64_t session, uint64_t chunk, uint64_t offset) {
    return session << kSessionShift | chunk << kChunkShift | offset;
  }

  bool Claim(uint64_t session, uint64_t words, uint64_t* place) {
    uint64_t word = LoadRelaxed(word_);
    for (int i = 0; i < kAttempts; ++i) {
      if (SessionOf(word) != session || OffsetOf(word) + words > trace_ring::Chunk::kWords)
        return false;
      if (word_.compare_exchange_strong(word, word + words, std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
        *place = word;
        return true;
      }
    }
    return false;
  }
  [[gnu::noinline]] bool ClaimInNewChunk(TraceSession& trace, uint64_t session, uint64_t words,
                                         uint64_t* place) {
    const TryLock lock{&is_taking_chunk_};
    if (!lock || trace.session() != session) return false;
    // Another thread may have been here meanwhile.
    if (Claim(session, words, place)) return true;
    const bool is_full = LoadRelaxed(word_) == Word(session, 0, kFull);
    if (is_full && records_to_skip_ != 0) return --records_to_skip_, false;
    uint64_t chunk = 0;
    const bool has_chunk =
        trace.TakeChunk(session, trace_ring::OwnerWord(session, slot_, role_), &chunk);
    const uint64_t before =
        word_.exchange(has_chunk ? Word(session, chunk, words) : Word(session, 0, kFull),
                       std::memory_order_acq_rel);
    if (SessionOf(before) == session && OffsetOf(before) != kFull)
      trace.Close(ChunkOf(before), OffsetOf(before));
    if (!has_chunk) records_to_skip_ = kSkippedRecords;
    *place = Word(session, chunk, 0);
    return has_chunk;
  }

  AtomicU64 word_{0};
  std::atomic<TraceSession*> trace_{nullptr};
  std::atomic<bool> is_taking_chunk_{false};
  uint32_t records_to_skip_ = 0;  // under the lock
  trace_ring::Role role_ = trace_ring::Role::kCaller;
  uint32_t slot_ = 0;
};

}  // namespace nccl_exporter::plugin
