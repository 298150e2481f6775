// SPDX-License-Identifier: Apache-2.0
// The trace file: memory of a training process in which a requester on the node asks its plugin for
// details of operations, and from which it reads them. This header is its specification.
//
//   offset 0        ControlPage          the request, and the plugin's answer
//   offset 4096     lost                 records that were lost, by slot of the segment and role
//   offset 69632    Chunk 0 ... 4095     records
//
// The plugin makes the file by memfd_create when it makes its segment, sets its size, and seals the
// size (F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL): no address of the mapping is ever behind the end
// of the file, so nobody can cause a SIGBUS by its size. It is sparse: until a request comes it has
// one page. The requester allocates what it asks for before it asks (fallocate), so the pages are
// charged to it, and a shortage of memory is its error. It never gives them back: a thread of the
// plugin may be writing.
//
// Access is the kernel's rule for /proc/PID/fd: the same user, or root.
//
// Who writes what, and which store pairs with which load:
//   control.version     the plugin, last, with release. Nothing before it changes afterwards.
//   control.generation  the requester, with release, after the words behind it. The plugin loads it
//                       at starts of operations; a value that differs from the one before is a
//                       request. It loads each word once, checks its copy, and never looks again.
//   control.answered    the plugin, with release, after `answer` and `session`.
//   lost                the plugin adds.
//   chunk.owner         the plugin, by compare-and-swap from a word that is not of its session;
//                       before that it fills the records with zeros. The requester stores 0 when it
//                       has read the whole chunk.
//   chunk.closed_words  the plugin, with release, when no further record will be claimed.
//   chunk.words         a record's first word is stored last, with release. 0: not written so far.
// The plugin decides where it writes by memory of its own. What the requester writes decides only
// whether it writes.
//
// One requester at a time: it holds an exclusive flock() on its own open file.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/network_state.h"

namespace nccl_exporter::trace_ring {

using AtomicU64 = std::atomic<uint64_t>;

// Name given to memfd_create. The link in /proc/PID/fd says "/memfd:nccl-exporter-trace (deleted)".
inline constexpr char kFileName[] = "nccl-exporter-trace";
inline constexpr uint64_t kMagic = 0x314352544c43434e;  // "NCCLTRC1"
inline constexpr uint64_t kVersion = 1;

// Limits, each with its reason.
inline constexpr uint64_t kMostWindowNs = 60'000'000'000;  // a requester that died is bounded by it
inline constexpr uint64_t kMostAheadNs = 60'000'000'000;   // ranks of a job are asked one by one
// Operations of the window that end later than this after it are not recorded.
inline constexpr uint64_t kGraceNs = 5'000'000'000;
inline constexpr uint64_t kChunkBytes = 4096;
inline constexpr uint64_t kMostChunks = 4096;  // 16 MiB: 0.4 s of the most steps that are known
inline constexpr uint64_t kFewestChunks = 16;
// A request's number of chunks is a power of two.
inline constexpr uint64_t kMostSlots = 4096;  // as in a segment

enum class Level : uint64_t {
  kNone = 0,      // ends the request before
  kChannels = 2,  // operations and kernel channels
  kSteps = 3,     // steps of network operations too: windows of network timing stay open
};

enum class Answer : uint64_t {
  kTaken = 1,
  kUnknownLevel = 2,
  kWrongTimes = 3,  // the end is not behind the begin, over, or too far away
  kWrongRing = 4,   // too few chunks, or too many
};

// Threads of a communicator that write records.
enum class Role : uint64_t { kCaller = 0, kProgress = 1 };
inline constexpr size_t kRoleCount = 2;

struct alignas(4096) ControlPage {
  AtomicU64 version;
  uint64_t magic;
  uint64_t owner_start_ns;  // SegmentHeader::start_monotonic_ns of the process: a forked child
                            // inherits the descriptor
  uint64_t file_bytes;

  alignas(64) AtomicU64 generation;
  AtomicU64 level;
  AtomicU64 begin_realtime_ns;
  AtomicU64 end_realtime_ns;
  AtomicU64 chunks;            // the first ones, which were allocated
  AtomicU64 has_communicator;  // 0: all of them
  AtomicU64 communicator_id;

  alignas(64) AtomicU64 answered;  // generation
  AtomicU64 answer;
  AtomicU64 session;  // of the plugin, in chunk.owner; 0: no records
};
static_assert(sizeof(ControlPage) == 4096);

struct Chunk {
  static constexpr size_t kWords = kChunkBytes / sizeof(uint64_t) - 2;
  AtomicU64 owner;         // see OwnerWord; 0: free
  AtomicU64 closed_words;  // 0: open
  AtomicU64 words[kWords];
};
static_assert(sizeof(Chunk) == kChunkBytes);

struct File {
  ControlPage control;
  AtomicU64 lost[kMostSlots][kRoleCount];
  Chunk chunks[kMostChunks];
};

// Bytes of the file that a request with so many chunks uses.
constexpr uint64_t UsedBytes(uint64_t chunks) {
  return offsetof(File, chunks) + chunks * kChunkBytes;
}

// Session << 32 | slot << 8 | role. In place of the role kBeingCleared: the records are not yet
// this owner's.
inline constexpr uint64_t kSessionMask = (uint64_t{1} << 24) - 1;
constexpr uint64_t OwnerWord(uint64_t session, uint32_t slot, Role role) {
  return session << 32 | uint64_t{slot} << 8 | static_cast<uint64_t>(role);
}
inline constexpr uint64_t kBeingCleared = 0xff;
constexpr uint64_t SessionOf(uint64_t owner) { return owner >> 32; }
constexpr uint32_t SlotOf(uint64_t owner) { return static_cast<uint32_t>(owner >> 8 & 0xffffff); }
constexpr uint64_t RoleNumberOf(uint64_t owner) { return owner & 0xff; }

// Records. Tickets are the low 26 bits of an operation's number on its communicator.
enum class RecordType : uint64_t { kOperation = 1, kChannel = 2, kNetworkOperation = 3, kStep = 4 };
constexpr RecordType TypeOf(uint64_t first_word) {
  return static_cast<RecordType>(first_word & 0xf);
}
constexpr uint64_t Bits(uint64_t word, int low, int count) {
  return word >> low & ((uint64_t{1} << count) - 1);
}
inline constexpr int kTicketBits = 26;
inline constexpr uint64_t kTicketMask = (uint64_t{1} << kTicketBits) - 1;

// type (4) | function (8) | ticket (26) | peer + 1 (26); sequence; call (CLOCK_MONOTONIC); bytes.
using OperationRecord = std::array<uint64_t, 4>;
constexpr OperationRecord MakeOperation(uint64_t function, uint64_t ticket, int64_t peer,
                                        uint64_t sequence, uint64_t call_ns, uint64_t bytes) {
  return {static_cast<uint64_t>(RecordType::kOperation) | function << 4 |
              (ticket & kTicketMask) << 12 | (static_cast<uint64_t>(peer + 1) & kTicketMask) << 38,
          sequence, call_ns, bytes};
}

// type (4) | channel (8) | ticket (26); start and stop in the clock of the timing source.
using ChannelRecord = std::array<uint64_t, 3>;
constexpr ChannelRecord MakeChannel(uint32_t channel, uint64_t ticket, uint64_t start_ns,
                                    uint64_t stop_ns) {
  return {static_cast<uint64_t>(RecordType::kChannel) | uint64_t{channel} << 4 |
              (ticket & kTicketMask) << 12,
          start_ns, stop_ns};
}

// type (4) | whether it sends (1) | whether its operation is known (1) | channel (8) at bit 8 |
// key (32) at bit 32; peer + 1 (32) | bytes of a step (32); ticket.
using NetworkOperationRecord = std::array<uint64_t, 3>;
constexpr NetworkOperationRecord MakeNetworkOperation(uint32_t key, bool is_send, bool has_ticket,
                                                      uint64_t ticket, uint8_t channel, int peer,
                                                      int step_bytes) {
  return {static_cast<uint64_t>(RecordType::kNetworkOperation) | uint64_t{is_send} << 4 |
              uint64_t{has_ticket} << 5 | uint64_t{channel} << 8 | uint64_t{key} << 32,
          uint64_t{static_cast<uint32_t>(peer) + 1} << 32 | static_cast<uint32_t>(step_bytes),
          ticket & kTicketMask};
}

// A step that has ended, as long as it was the oldest of its operation: type (4) | key (32) at bit
// 32; end (CLOCK_MONOTONIC); nanoseconds in each NetworkState. They add up to the time since the
// step before ended, or since the first one began.
using StepRecord = std::array<uint64_t, 2 + kNetworkStateCount>;
constexpr StepRecord MakeStep(uint32_t key, uint64_t end_ns,
                              const std::array<uint64_t, kNetworkStateCount>& state_ns) {
  StepRecord record{static_cast<uint64_t>(RecordType::kStep) | uint64_t{key} << 32, end_ns};
  for (size_t i = 0; i < kNetworkStateCount; ++i) record[2 + i] = state_ns[i];
  return record;
}

// Words of a record; 0: no such type.
constexpr size_t WordsOf(RecordType type) {
  switch (type) {
    case RecordType::kOperation:
      return std::tuple_size_v<OperationRecord>;
    case RecordType::kChannel:
      return std::tuple_size_v<ChannelRecord>;
    case RecordType::kNetworkOperation:
      return std::tuple_size_v<NetworkOperationRecord>;
    case RecordType::kStep:
      return std::tuple_size_v<StepRecord>;
  }
  return 0;
}

// Words of the shortest record.
inline constexpr size_t kFewestWords = std::tuple_size_v<ChannelRecord>;

}  // namespace nccl_exporter::trace_ring
