// SPDX-License-Identifier: Apache-2.0
// Requests for traces, as this process takes them, and the ring of chunks of the request that is in
// force. Any thread; no waiting, no allocation, no system call.
//
// The request lies in memory that another process writes (proto/trace_ring.h), whatever it writes:
//   1. A start of an operation compares one word of it with `settled_`. If they are equal, nothing
//      is asked for: that is all that a process pays which nobody traces.
//   2. Else one thread at a time loads each word once into a copy, checks the copy, and keeps it
//      here. No other word of the request is ever read again, and none is an address or an index:
//      an answer of "taken" bounds what follows, whatever the page says later.
//   3. `session_` is 0 while the copy is being changed, whose words are stored with release. A
//      thread acquires it, then the words, then loads it again: what it uses is one request.
//   4. A chunk's number is below trace_ring::kMostChunks by its width, and the file has so many,
//      sealed: every store lies within it. A thread that was preempted between claim and store may
//      store one record into a chunk of another lane, whose reader sees a wrong record then.
//   5. After the end, and the time in which operations of the window may still end, the next start
//      of an operation settles the request: 1 holds again.
// In a forked child all is zero, and its callbacks find no communicator.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "plugin/segment/atomics.h"
#include "proto/trace_ring.h"

namespace nccl_exporter::plugin {

// The trace file of this process: made and mapped when the segment is, for the life of the process.
// Under the process's lock.
struct TraceFile {
  trace_ring::File* file = nullptr;  // nullptr: there is none
  const char* fault = nullptr;       // the step that failed; errno has the reason
};

// `owner_start_ns`: of the segment. The descriptor stays open: it is how a requester finds the
// file. A forked child has both, and does not know of them: see process.h.
TraceFile MakeTraceFile(uint64_t owner_start_ns);

// All zeros is its first state, as in a forked child: nothing can be asked for.
class TraceSession {
 public:
  // Under the process's lock, before any callback. nullptr: nothing can be asked for.
  void Open(trace_ring::File* file) {
    file_ = file;
    requested_ = file != nullptr ? &file->control.generation : &nothing_;
  }

  // Whether nothing is asked for.
  bool IsSettled() const { return LoadRelaxed(*requested_) == LoadRelaxed(settled_); }

  // Takes the request if it is a new one. `now_ns`: CLOCK_MONOTONIC. Returns until when a request
  // that was taken now wants the windows of network timing open (CLOCK_REALTIME); 0: not at all.
  // Nothing if none was taken.
  [[gnu::cold, gnu::noinline]] std::optional<uint64_t> Take(uint64_t now_ns);
  // Level of detail that is recorded of an operation, if it is called at this time on this
  // communicator.
  [[gnu::cold, gnu::noinline]] trace_ring::Level LevelOf(uint64_t call_ns,
                                                         uint64_t communicator_id) const;

  // Records.

  // 0: none are wanted.
  uint64_t session() const { return LoadAcquire(session_); }
  // A free chunk for a lane, filled with zeros; false if there is none. Up to kLooks are looked at.
  bool TakeChunk(uint64_t session, uint64_t owner, uint64_t* chunk);
  // No further record will be claimed in the chunk.
  void Close(uint64_t chunk, uint64_t words) { StoreRelease(At(chunk).closed_words, words); }
  // `at`: first word; the words lie within the chunk.
  template <size_t kWords>
  void Store(uint64_t chunk, uint64_t at, const std::array<uint64_t, kWords>& record) {
    AtomicU64* const words = &At(chunk).words[at];
    for (size_t i = 1; i < kWords; ++i) StoreRelaxed(words[i], record[i]);
    StoreRelease(words[0], record[0]);
  }
  [[gnu::cold]] void CountLost(uint32_t slot, trace_ring::Role role) {
    AddRelaxed(file_->lost[slot % trace_ring::kMostSlots][static_cast<size_t>(role)], 1);
  }

 private:
  static constexpr uint64_t kLooks = 8;

  trace_ring::Chunk& At(uint64_t chunk) {
    static_assert((trace_ring::kMostChunks & (trace_ring::kMostChunks - 1)) == 0);
    return file_->chunks[chunk & (trace_ring::kMostChunks - 1)];
  }
  trace_ring::Answer Keep(const trace_ring::ControlPage& page, uint64_t now_ns,
                          uint64_t* wanted_level, uint64_t* end_realtime_ns);

  trace_ring::File* file_;
  const AtomicU64* requested_;
  AtomicU64 nothing_;
  AtomicU64 settled_;  // generation of a request that is over or was refused
  AtomicU64 taken_;    // generation of the latest request that was looked at
  std::atomic<bool> is_taking_;
  uint64_t sessions_;  // so far; by the thread that takes

  AtomicU64 session_;
  // The copy.
  AtomicU64 level_;
  AtomicU64 begin_ns_;  // CLOCK_MONOTONIC
  AtomicU64 end_ns_;
  AtomicU64 has_communicator_;
  AtomicU64 communicator_id_;
  AtomicU64 chunk_mask_;

  alignas(64) AtomicU64 next_chunk_;  // where the next lane begins to look
};

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
