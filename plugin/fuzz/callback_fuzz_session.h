// SPDX-License-Identifier: Apache-2.0
// One process as NCCL would have it: its communicators coming and going, and an account of
// everything announced on them, kept apart from the plugin and compared with the segment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "plugin/fuzz/callback_fuzz_tables.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin::fuzz {

// Ends the program, after one line that says what does not hold, and with which seed.
void SetSeed(uint64_t seed);
[[noreturn]] void Fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

using Tally = std::atomic<uint64_t>;

struct Account {
  struct OfFunction {
    Tally calls{0};
    std::array<Tally, kSizeClassCount> operations{};
    std::array<Tally, kSizeClassCount> bytes{};
  };
  std::array<OfFunction, kFunctionCount> functions{};

  void AddCall(Function function) {
    functions[static_cast<size_t>(function)].calls.fetch_add(1, std::memory_order_relaxed);
  }
  void AddOperation(Function function, uint64_t bytes);
};

struct Member {
  int version = 0;
  void* context = nullptr;
  uint64_t id = 0;     // no other member of the session has it
  uint32_t ranks = 0;  // as MessageBytes() wants them
  bool is_overflow = false;
  uint32_t slot = 0;
  uint64_t generation = 0;
  bool reports_proxy = false;  // init asked for proxy operations, not kernel channels
  bool is_mute = false;        // none of its operations ever reports a part
  // Nothing makes its counters drift, and what is reported is reported in order.
  bool is_orderly = false;
  std::atomic<bool> is_leaving{0};  // set before finalize is called
  std::atomic<bool> is_gone{0};     // set after it has returned
  Account account;
  // Started operations, for who reports their parts.
  struct Started {
    std::atomic<void*> handle{nullptr};
    std::atomic<uint8_t> channels{0};
  };
  std::array<Started, 256> operations{};
  Tally started{0};
  Tally reported{0};
  std::vector<uint64_t> counts_seen;  // at the last look
};

// A place for one communicator at a time. Its calls, its init and its finalize exclude each other
// as NCCL demands of its users; what NCCL's own threads report is not excluded by anything.
struct Slot {
  std::shared_mutex users;
  std::atomic<Member*> member{nullptr};
};

class Session {
 public:
  static constexpr int kSlots = 5;  // besides the overflow slot
  static constexpr int kBerths = 8;

  // Sets the plugin's environment up: before its first init. One a process.
  explicit Session(bool with_kernel_timing);
  ~Session();

  Slot& berth(uint32_t index) { return berths_[index]; }
  // Both with the berth's users excluded.
  void Open(Slot& berth, int version, Introduction introduction, bool is_mute, bool is_orderly);
  void Close(Slot& berth);

  // A context of a communicator that is gone, or nullptr.
  void* FormerContext(uint32_t choice) const { return former_[choice % former_.size()].load(); }
  Account& AccountOf(Member& member) { return member.is_overflow ? overflow_ : member.account; }
  uint64_t LossesOf(Loss loss) const {
    const layout::SegmentHeader* header = header_.load(std::memory_order_acquire);
    return header == nullptr
               ? 0
               : header->losses[static_cast<int>(loss)].load(std::memory_order_relaxed);
  }
  uint64_t LossesOfAll() const;
  // Proxy operations that were stopped, and bytes that their steps had; no more is counted. Sums
  // over all members, as a stray handle may be another's.
  Tally network_stops{0};
  Tally network_bytes{0};
  bool IsHere(uint64_t member_id) const;
  // Both read the member's slot; the overflow slot has none of either.
  uint64_t NetworkOperationsOf(const Member& member) const;
  bool AsksForSteps(const Member& member) const;
  uint64_t timed() const { return timed_; }

  // Compares the segment with the account; while no callback is under way.
  void Check();
  void CopySegment(const std::string& path) const;
  // Finalizes all, checks, and lets the retention time pass.
  void Clear();

 private:
  const layout::CommunicatorSlot& SlotAt(uint32_t index) const;
  void Map();
  bool FindSlot(Member& member, const Introduction& introduction,
                const std::vector<uint64_t>& states_before) const;
  std::vector<uint64_t> States() const;
  // Whether a further communicator would take the slot of one that is gone and was not checked.
  bool WouldTakeUncheckedSlot();
  void CheckMember(Member& member);
  void CheckOverflow();
  void CheckLosses();

  std::string directory_;
  // Mapped after the first init, which is raced for.
  std::atomic<const layout::SegmentHeader*> header_{nullptr};
  std::once_flag is_mapped_;
  std::mutex nameless_;  // held by inits without an id
  std::array<Slot, kBerths> berths_;
  std::mutex members_lock_;
  std::vector<std::unique_ptr<Member>> members_;
  std::array<std::atomic<void*>, 64> former_{};
  Tally former_count_{0};
  Tally id_{1000};  // beyond those of first operations
  Tally overflow_contexts_{0};
  Tally unseen_bound_{0};
  Account overflow_;
  std::array<uint64_t, kLossCount> losses_seen_{};
  // Counts of members that are gone and were checked for the last time.
  uint64_t uncompleted_of_the_gone_ = 0;
  uint64_t timed_of_the_gone_ = 0;
  // Whether a slot was taken before its former communicator was checked: by a thread that opened
  // one while another thread closed one. What became of its operations is not known.
  bool has_taken_unchecked_slot_ = false;
  uint64_t uncompleted_ = 0;  // at this check
  uint64_t timed_ = 0;
};

}  // namespace nccl_exporter::plugin::fuzz
