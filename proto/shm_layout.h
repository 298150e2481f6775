// SPDX-License-Identifier: Apache-2.0
// The segment: one file a process, written by the plugin, read by the collector. This header is its
// specification; the byte tables in proto/README.md are compared with it by a test.
//
//   offset 0                SegmentHeader      8 KiB   process, geometry, losses, identity pairs
//   offset 8192             CommunicatorSlot 0         one communicator each, slot_bytes apart
//   ...                     ...
//   offset 8192 + n*stride  CommunicatorSlot n         the last one is the overflow slot:
//                                                      communicators without a slot
// A file may be longer than file_bytes: plugins with layout 1.5 to 1.7 could put further tables
// there.
//
// The file is sparse. The header and the overflow slot are reserved (fallocate) at creation, every
// other slot when it is claimed; a slot that is not reserved reads as zeros, which is state kFree.
// Slots are claimed from the first one on: behind one in state kFree no other but the overflow slot
// is in use.
//
// Words are 64 bit, little endian, naturally aligned. Text is UTF-8, ends with a NUL or with its
// field, and is written once before the state that publishes it.
//
// Who writes what, and which store pairs with which load:
//   header.version     stored last, with release, when everything else in the header is written; 0
//                      means not ready.
//   header.losses      relaxed increments by any thread of the process.
//   header.rank_numbers_process  relaxed, at most once, before the communicator that shows it goes
//                                Live.
//   header.first_communicator    relaxed, at most once, before the first communicator of more than
//                                one rank goes Live.
//   header.chain       `name` before the flag kChainOpen, at most once; relaxed additions, and
//                      flags that stay, by any thread.
//   slot.state         Claimed -> zeros and identity written -> Live (release); Closed (release) at
//                      finalize. A closed slot is claimed again, with a higher generation, after
//                      the retention time, or before if no other slot is left, and is never free
//                      again. A reader that finds another state word after its copy than in it
//                      throws the copy away.
//   slot.functions     relaxed increments. The first lines of a block belong to the threads that
//                      start operations, the others to those that complete them. Words only ever
//                      grow within a generation.
//   slot.size_histograms  `owner` is stored once in a generation, with release, before the first
//                      count of its function and size class. An operation is counted in
//                      functions.duration first, so a reader that copies functions before this
//                      finds a histogram for every size class with timed operations, unless there
//                      was no room for one.
//   slot.network       relaxed additions by the threads that end proxy operations: of a whole
//                      operation at its end. A reader may see some words of an operation and not
//                      yet the others. Words only ever grow within a generation, but for
//                      `share_ppm`, which is written before the state Live.
//   slot.in_flight     word `ticket` is stored last with release when an entry is taken, and set to
//                      0 when it is given back.
//   slot.completions   word `ticket` is set to 0, the entry written, `ticket` stored with release.
//                      A reader takes an entry only if the ticket is the same before and after;
//                      entries may be overwritten at any time.
// A reader copies (pread) and believes nothing that it has not checked. The writer never reads back
// what it acts on.
//
// Liveness: the writer holds a POSIX write lock on the whole file as long as it lives, and the lock
// of flock() as long as it maps the file. Another process of the user makes the file of a dead
// writer read-only before it removes it. Versions: another major means another layout: refuse it. A
// higher minor appended words: use the strides in the header.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/buckets.h"
#include "proto/collective.h"
#include "proto/loss.h"
#include "proto/network_state.h"
#include "proto/timing_source.h"

namespace nccl_exporter::layout {

using AtomicU64 = std::atomic<uint64_t>;
static_assert(sizeof(AtomicU64) == 8 && AtomicU64::is_always_lock_free);

inline constexpr uint32_t kMajor = 1;
inline constexpr uint32_t kMinor = 8;
inline constexpr uint64_t kVersion = uint64_t{kMajor} << 32 | kMinor;
inline constexpr uint64_t kMagic = 0x314745534c43434e;  // "NCCLSEG1"
inline constexpr const char kFileSuffix[] = ".seg";

// Limits, each with its reason.
inline constexpr uint64_t kMaxSlots = 4096;  // slot numbers take 12 bits in a handle
// Operations a process may run ahead of its GPU on one communicator.
inline constexpr int kInFlightEntries = 512;
inline constexpr int kCompletionEntries = 512;  // 50 ms at 10,000 operations a second
inline constexpr int kIdentityPairs = 32;
inline constexpr int kLossWords = 64;                // room for causes to come
inline constexpr uint64_t kSlotLimitBytes = 131072;  // shared memory that one communicator may take
// Pairs of function and size class of one communicator that have a histogram of their own: as many
// as fit into kSlotLimitBytes, more than which the readers of 1.0 to 1.2 refuse. Jobs use 4 to 10.
inline constexpr int kSizeHistograms = 11;

struct IdentityPair {
  char key[32];    // name of an environment variable (identity_variables.h)
  char value[96];  // cut at the last whole character that fits
};

enum ChainFlag : uint64_t {
  kChainOpen = 1,
  kChainWithoutKernelEvents = 2,  // it asked for them, and this plugin's policy refused
  kChainOverBudget = 4,           // it gets no further starts
};

// The plugin that is chained to this one (1.8); all 0 if there is none.
struct ChainBlock {
  AtomicU64 callbacks;  // of events, by samples
  AtomicU64 ns;         // their time, by the same samples
  AtomicU64 flags;      // ChainFlag
  char name[40];        // that it gives itself
};

struct alignas(4096) SegmentHeader {
  AtomicU64 version;  // kVersion, stored last
  uint64_t magic;
  uint64_t header_bytes;  // sizeof(SegmentHeader) of the writer
  uint64_t slot_bytes;    // stride of the slots
  uint64_t slot_count;    // the overflow slot included, which is the last
  uint64_t file_bytes;    // header_bytes + slot_count * slot_bytes; the file may be longer
  uint64_t pid;           // in the writer's own PID namespace: for display, never for liveness
  uint64_t uid;
  uint64_t start_realtime_ns;   // when the segment was created: the two clocks read together
  uint64_t start_monotonic_ns;  // CLOCK_MONOTONIC; all other monotonic times are of this clock
  uint64_t identity_count;      // pairs in use, at most kIdentityPairs
  uint64_t retention_ns;        // closed slots are not claimed before, unless no other is left
  char plugin_version[32];
  char host_name[64];
  char executable[64];                       // base name of the program
  alignas(64) AtomicU64 losses[kLossWords];  // indexed by Loss
  AtomicU64 rank_numbers_process;  // 1, and then for good: RANK and its kin number the process, not
                                   // a rank (1.2)
  uint64_t reserved_1_5;           // not 0 in some files of 1.5 to 1.7
  AtomicU64 first_communicator;    // id of the first with more than one rank; 0: none yet (1.7)
  ChainBlock chain;                // (1.8)
  alignas(4096) IdentityPair identity[kIdentityPairs];
};
static_assert(sizeof(SegmentHeader) == 8192);

enum class SlotState : uint8_t { kFree = 0, kClaimed = 1, kLive = 2, kClosed = 3 };

// The state word: generation << 8 | state.
constexpr uint64_t StateWord(uint64_t generation, SlotState state) {
  return generation << 8 | static_cast<uint64_t>(state);
}
constexpr SlotState StateOf(uint64_t word) { return static_cast<SlotState>(word & 0xff); }
constexpr uint64_t GenerationOf(uint64_t word) { return word >> 8; }

// In the function word of an operation in flight: it is not timed, and without parts no event shows
// when it is complete (1.1).
inline constexpr uint64_t kUntimedFlag = 1 << 8;

// Counters of one function on one communicator.
struct alignas(64) FunctionBlock {
  // Written by the threads that call NCCL.
  AtomicU64 calls;          // API calls (API v5 and later)
  AtomicU64 last_start_ns;  // CLOCK_MONOTONIC of the latest start
  // Message bytes of the operations whose network operations are timed (1.6). Counted at the start,
  // where the slot's network has a share; an operation that does not leave its node counts too.
  AtomicU64 network_timed_bytes;
  AtomicU64 reserved_start[5];
  struct alignas(64) {
    AtomicU64 operations[8];  // by size class
    AtomicU64 bytes[8];       // message bytes, by size class
  } started;
  // Written by the threads that report completions.
  struct alignas(64) {
    AtomicU64 timed_operations[8];  // by size class: operations with a measured duration
    AtomicU64 timed_bytes[8];       // message bytes of those
    AtomicU64 busy_ns[8];           // sum of their durations
  } timed;
  AtomicU64 completed;           // operations known complete, timed or not
  AtomicU64 last_completion_ns;  // CLOCK_MONOTONIC of the latest completion
  AtomicU64 bandwidth_sum_kib;   // sum of the bandwidth histogram's values, in KiB/s, each rounded
                                 // to the nearest
  AtomicU64 reserved_completion[5];  // the first three are not 0 in some files of 1.2 to 1.7
  AtomicU64
      duration[(DurationBuckets::kCount + 7) / 8 * 8];  // indexed by DurationBuckets::IndexOf(ns)
  AtomicU64 bandwidth[(BandwidthBuckets::kCount + 7) / 8 *
                      8];  // indexed by BandwidthBuckets::IndexOf(bytes per second)
};

// An operation between its start and its completion: what the rank was in, should it die or hang.
struct alignas(64) InFlightEntry {
  AtomicU64 ticket;    // 1 + number of the operation on its communicator; 0: entry not in use
  AtomicU64 function;  // Function, in the low 8 bits; kUntimedFlag
  AtomicU64 sequence;  // NCCL's sequence number of the function (not for Send and Recv)
  AtomicU64 start_ns;  // CLOCK_MONOTONIC of the call
  AtomicU64 bytes;     // message bytes
  // Parts announced << 32 | parts done; a part is a kernel channel or a proxy operation.
  AtomicU64 parts;
  AtomicU64 last_part_ns;  // CLOCK_MONOTONIC of the latest part's event; 0: none yet
  AtomicU64 peer;          // 1 + peer rank of Send and Recv, else 0
};

struct alignas(64) CompletionEntry {
  AtomicU64 ticket;                 // 1 + number of the completion on its communicator
  AtomicU64 function_and_sequence;  // Function << 56 | NCCL's sequence number (low 56 bits)
  AtomicU64 call_ns;                // CLOCK_MONOTONIC of the call
  AtomicU64 start_ns;               // first channel's start, in the clock of the timing source
  AtomicU64 stop_ns;                // last channel's stop, in the same clock
  AtomicU64 delivered_ns;           // CLOCK_MONOTONIC when the last stop was delivered
  AtomicU64 bytes;
  AtomicU64 members;  // operations that shared the launch: 1 means alone
};

// The word `owner` of a SizeHistogram in use; 0: not in use.
constexpr uint64_t SizeHistogramOwner(Function function, int size_class) {
  return uint64_t{1} << 16 | uint64_t{static_cast<uint8_t>(function)} << 8 |
         static_cast<uint64_t>(size_class);
}

// The part of FunctionBlock::duration that belongs to one size class (1.3).
struct alignas(64) SizeHistogram {
  AtomicU64 owner;  // SizeHistogramOwner
  AtomicU64 reserved[5];
  AtomicU64 duration[DurationBuckets::kCount];  // indexed by DurationBuckets::IndexOf(ns)
};
static_assert(sizeof(SizeHistogram) == 1984, "eleven fit");

// Proxy operations of one direction whose steps were all seen (1.4).
struct NetworkDirectionBlock {
  // Indexed by NetworkState. They add up to the time from the first step of each operation to the
  // end of its last one.
  AtomicU64 wait_ns[kNetworkStateCount];
  AtomicU64 bytes;       // that the adapter took, or brought
  AtomicU64 operations;  // proxy operations: one channel of an operation, to or from one peer
};

struct alignas(64) NetworkBlock {
  NetworkDirectionBlock directions[kNetworkDirectionCount];  // indexed by NetworkDirection
  AtomicU64 share_ppm;  // share of time in which they are timed, in millionths; 0: never
  AtomicU64 reserved[3];
};
static_assert(sizeof(NetworkBlock) == 128);

struct alignas(4096) CommunicatorSlot {
  AtomicU64 state;
  uint64_t communicator_id;  // NCCL's commHash or commId: the same on all ranks
  uint64_t ranks;            // 0: not known (API v1 to v3)
  uint64_t rank;
  uint64_t nodes;          // 0: not known
  uint64_t api_version;    // 1 to 7
  uint64_t nccl_version;   // as ncclGetVersion reports it (22907); 0: not found
  uint64_t event_mask;     // events that NCCL was asked for
  uint64_t timing_source;  // TimingSource
  uint64_t timing_reason;  // TimingReason
  uint64_t gpu_index;      // 1 + index of the GPU on its node; 0: unknown
  uint64_t created_realtime_ns;
  uint64_t created_monotonic_ns;
  AtomicU64 closed_monotonic_ns;  // 0: not finalized
  uint64_t has_identity;   // 0: communicator_id and rank are not known yet (API v1 to v3 have them
                           // in the first operation)
  AtomicU64 reserved_1_1;  // not 0 in files of 1.1 to 1.7
  char name[128];          // user's name of the communicator, or empty
  char gpu_uuid[64];       // "GPU-xxxxxxxx-xxxx-...", or empty
  char pci_bus_id[48];    // "0000:3b:00.0", or empty; before 1.2 it had 64 bytes, of which the last
                          // 16 were NUL
  AtomicU64 drift_cause;  // DriftCause: the first (1.2)
  AtomicU64 probation_launches;  // that have yet to agree with the CPU's clock before kernel times
                                 // are believed (1.2)
  alignas(64) FunctionBlock functions[kFunctionCount];
  InFlightEntry in_flight[kInFlightEntries];  // entry of a ticket: (ticket - 1) % kInFlightEntries
  // Entry of a ticket: (ticket - 1) % kCompletionEntries.
  CompletionEntry completions[kCompletionEntries];
  // In use from the first on, in the order of first use (1.3).
  SizeHistogram size_histograms[kSizeHistograms];
  NetworkBlock network;  // (1.4)
  // As the launcher has numbered the ranks when the communicator was made (1.7); 0: not proven.
  uint64_t global_rank;  // 1 + number of the rank in the job
  uint64_t local_rank;   // 1 + number of the rank on its node
  uint64_t world_size;   // ranks of the job
};
// A slot of 1.0 to 1.2 ends before size_histograms.
inline constexpr uint64_t kSlotBytesBefore13 = 110592;
static_assert(offsetof(CommunicatorSlot, size_histograms) <= kSlotBytesBefore13);
static_assert(sizeof(CommunicatorSlot) == 131072, "1.3 to 1.7 have the same size");
static_assert(sizeof(CommunicatorSlot) <= kSlotLimitBytes);

}  // namespace nccl_exporter::layout
