// SPDX-License-Identifier: Apache-2.0
// Model of NCCL 2.30 before a communicator: a host that calls ahead, a GPU whose works write NCCL's
// ring of 64 time stamps, and a progress thread that reads the ring late. For one source file of a
// test (virtual_time.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plugin/operations/communicator.h"
#include "plugin/operations/overrun/virtual_time.h"

namespace nccl_exporter::plugin {

inline constexpr uint64_t kRing = 64;

using Calls = std::vector<Function>;

inline Calls Pairs(int count) {
  Calls calls;
  for (int i = 0; i < count; ++i) calls.insert(calls.end(), {Function::kSend, Function::kRecv});
  return calls;
}

inline Calls Many(int count) { return Calls(static_cast<size_t>(count), Function::kReduceScatter); }

struct JobOptions {
  std::vector<Calls> groups;  // in turn
  // Replayed before every so many rounds; 0: never. Each call is captured, and announced, alone.
  Calls graph = {};
  int rounds_between_replays = 0;
  uint32_t channels = 1;
  // An inner group is around each call of a group: NCCL shows one GroupApi for each two calls.
  bool has_inner_groups = false;
  int rounds = 100;  // of all groups
  uint64_t kernel_ns = 20 * kUs;
  uint64_t compute_ns = 0;       // of the GPU between two kernels
  uint64_t call_ns = 5 * kUs;    // of the host for each call
  uint64_t most_ahead = 400;     // operations: then the host waits
  int rounds_between_waits = 0;  // for all that was called; 0: none
  // Distance of the progress thread behind the GPU until the GPU has nothing left to do.
  uint64_t rings_late = 0;
  uint64_t works_late = 0;  // and so many works
  // The thread runs for one time and is held up for the other, in turn; 0: never held up.
  uint64_t runs_ns = 0;
  uint64_t held_up_ns = 0;
  uint64_t jitter_seed = 0;  // of kernels, calls, and the thread; 0: none
};

class Job {
 public:
  explicit Job(JobOptions options) : options_(std::move(options)), random_(options_.jitter_seed) {
    communicator_->Open({TimingSource::kKernel, 0, 2, slot_.get(), header_.get()});
    unread_.resize(2 * options_.channels);
    for (size_t i = 0; i < options_.graph.size(); ++i) {
      communicator_->work_items().NoteGroup(1);
      communicator_->NoteCall(true);
    }
  }

  void Run() {
    virtual_ns = 10'000 * kMs;
    device_free_ns_ = virtual_ns;
    host_ns_ = virtual_ns;
    uint64_t idle_until = 0;
    while (round_ < options_.rounds || !IsRead()) {
      virtual_ns = IsIdle() ? until_ns_ : virtual_ns + 2 * kUs;
      RunHostFunctions();
      while (round_ < options_.rounds && host_ns_ <= virtual_ns && MayCall()) CallGroup();
      if (MayPoll()) Poll();
      ASSERT_LT(++idle_until, 30'000'000u) << "the job does not end";
    }
    communicator_->Finalize();
    Compare();
  }

  uint64_t operations() const { return operations_; }
  uint64_t recorded() const { return recorded_; }
  uint64_t wrong() const { return wrong_; }
  bool drifts() const { return !communicator_->FollowsOperations(); }
  uint64_t Losses(Loss loss) const {
    return LoadRelaxed(header_->losses[static_cast<size_t>(loss)]);
  }
  std::string AllLosses() const {
    std::string text;
    for (size_t i = 0; i < kLosses.size(); ++i) {
      const uint64_t count = LoadRelaxed(header_->losses[i]);
      if (count != 0) text += std::string(kLosses[i].reason) + "=" + std::to_string(count) + " ";
    }
    return text;
  }

 private:
  struct Work {  // item of each channel
    uint64_t start_ns;
    uint64_t stop_ns;
    bool is_profiled;
  };
  struct Part {  // of an operation, on one channel
    uint64_t ticket;
    size_t work;
    bool is_started = false;
  };
  // A host function on the stream. Replays are announced by them, and so are calls that are made
  // while they wait.
  struct HostFunction {
    uint64_t at_ns;
    std::function<void()> run;
  };
  struct Truth {
    uint64_t start_ns;
    uint64_t stop_ns;
  };

  uint64_t Jitter(uint64_t ns) {
    if (options_.jitter_seed == 0 || ns == 0) return ns;
    return ns / 4 + std::uniform_int_distribution<uint64_t>(0, 3 * ns / 2)(random_);
  }

  bool IsRead() const { return Unread() == 0 && host_functions_.empty(); }
  size_t Unread() const {
    size_t count = 0;
    for (size_t i = 0; i < unread_.size(); i += options_.channels) count += unread_[i].size();
    return count;
  }
  size_t Unfinished() const {
    size_t count = 0;
    for (auto work = works_.rbegin();
         work != works_.rend() && work->stop_ns > virtual_ns + kGpuOffsetNs; ++work)
      ++count;
    return count;
  }
  bool MayCall() {
    if (is_waiting_ && device_free_ns_ > virtual_ns) return false;
    is_waiting_ = false;
    return Unfinished() < options_.most_ahead && Unread() < options_.most_ahead;
  }

  // Nothing happens until the thread runs again.
  bool IsIdle() const {
    const bool may_not_call = Unread() >= options_.most_ahead;
    return is_held_up_ && until_ns_ > virtual_ns && (round_ >= options_.rounds || may_not_call);
  }

  static bool IsPointToPoint(Function function) { return TraitsOf(function).is_point_to_point; }

  void RunHostFunctions() {
    const uint64_t now_ns = virtual_ns;
    while (!host_functions_.empty() && host_functions_.front().at_ns <= now_ns) {
      virtual_ns = host_functions_.front().at_ns;
      host_functions_.front().run();
      host_functions_.pop_front();
    }
    virtual_ns = now_ns;
  }

  void CallGroup() {
    if (group_ == 0 && options_.rounds_between_replays != 0 &&
        round_ % options_.rounds_between_replays == 0)
      Replay();
    const Calls& calls = options_.groups[group_];
    const uint64_t now_ns = virtual_ns;
    std::vector<uint64_t> called_ns;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i == 0 || (options_.has_inner_groups && i % 2 == 0)) {
        communicator_->work_items().NoteGroup(calls.size() == 1           ? 1
                                              : options_.has_inner_groups ? 3
                                                                          : 2);
      }
      virtual_ns = std::max(virtual_ns, host_ns_);
      RunHostFunctions();
      called_ns.push_back(virtual_ns);
      NoteCall();
      host_ns_ = virtual_ns + Jitter(options_.call_ns);
    }
    virtual_ns = host_ns_;
    RunHostFunctions();
    Launch(calls, called_ns);
    virtual_ns = now_ns;  // the other threads have not got so far yet
    if (++group_ == options_.groups.size()) {
      group_ = 0;
      ++round_;
      is_waiting_ =
          options_.rounds_between_waits != 0 && round_ % options_.rounds_between_waits == 0;
    }
  }

  void NoteCall() {
    communicator_->NoteCall(false);
    communicator_->work_items().NoteCall(virtual_ns);
  }

  // One kernel. A Send and the Receive after it share a work item.
  void Launch(const Calls& calls, const std::vector<uint64_t>& called_ns) {
    const bool is_announced = calls != Calls{Function::kBroadcast};
    if (!is_announced) {
      Enqueue(calls, host_ns_, false);
    } else if (host_functions_.empty()) {
      Announce(calls, Enqueue(calls, host_ns_, true), called_ns);
    } else {
      const uint64_t at_ns = std::max(host_functions_.back().at_ns, host_ns_) + kUs;
      const size_t first_work = Enqueue(calls, at_ns, true);
      host_functions_.push_back({at_ns, [=, this] { Announce(calls, first_work, called_ns); }});
    }
  }

  void Replay() {
    host_ns_ = std::max(host_ns_, virtual_ns);
    for (const Function function : options_.graph) {
      const uint64_t before_ns = host_functions_.empty() ? host_ns_ : host_functions_.back().at_ns;
      // The graph begins when the stream reaches it.
      const uint64_t at_ns = std::max({before_ns, host_ns_,
                                       function == options_.graph.front() ? device_free_ns_ : 0}) +
                             kUs;
      const size_t work = Enqueue({function}, at_ns, true);
      host_functions_.push_back({at_ns, [=, this] { Announce({function}, work, {}); }});
    }
    host_ns_ += Jitter(options_.call_ns);
  }

  // The kernel begins after `ready_ns`. Returns its first work.
  size_t Enqueue(const Calls& calls, uint64_t ready_ns, bool is_profiled) {
    const size_t first_work = works_.size();
    const uint64_t start_ns =
        std::max(device_free_ns_ + Jitter(options_.compute_ns), ready_ns + 2 * kUs) + kUs;
    device_free_ns_ = start_ns + Jitter(options_.kernel_ns);
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!SharesItem(calls, i)) {
        works_.push_back({start_ns + kGpuOffsetNs, device_free_ns_ + kGpuOffsetNs, is_profiled});
      }
    }
    return first_work;
  }
  static bool SharesItem(const Calls& calls, size_t i) {
    return calls[i] == Function::kRecv && i > 0 && calls[i - 1] == Function::kSend;
  }

  // `called_ns` empty: a replay.
  void Announce(const Calls& calls, size_t first_work, const std::vector<uint64_t>& called_ns) {
    const uint64_t launch = communicator_->OpenLaunch();
    size_t work = first_work - 1;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!SharesItem(calls, i)) ++work;
      Announce(calls[i], work, launch, called_ns.empty(),
               called_ns.empty() ? virtual_ns : called_ns[i]);
    }
    communicator_->CloseLaunch(launch);
  }

  void Announce(Function function, size_t work, uint64_t launch, bool is_replay, uint64_t call_ns) {
    OperationStart start;
    start.function = function;
    start.message_bytes = 1 << 20;
    start.sequence = truths_.size();
    start.call_ns = call_ns;
    start.call_is_bound = true;
    start.is_replay = is_replay;
    start.channels = options_.channels;
    start.channels_are_exact = !IsPointToPoint(function);
    start.launch = launch;
    start.launch_is_followed = launch != 0;
    start.peer = IsPointToPoint(function) ? 1 : -1;
    const uint64_t ticket = communicator_->StartOperation(start);
    ++operations_;
    truths_.push_back({works_[work].start_ns, works_[work].stop_ns});
    if (ticket == 0) return;
    const size_t lane = function == Function::kRecv ? options_.channels : 0;
    for (size_t channel = 0; channel < options_.channels; ++channel)
      unread_[lane + channel].push_back({ticket, work});
  }

  // Works that the GPU has ended.
  size_t Ended() {
    while (ended_ < works_.size() && works_[ended_].stop_ns <= virtual_ns + kGpuOffsetNs) ++ended_;
    return ended_;
  }

  bool MayPoll() {
    if (options_.held_up_ns != 0 && virtual_ns >= until_ns_) {
      is_held_up_ = !is_held_up_;
      until_ns_ = virtual_ns + Jitter(is_held_up_ ? options_.held_up_ns : options_.runs_ns);
    }
    return !is_held_up_;
  }

  // The ring's entry of that counter as it is now: what was written last into it, or null.
  const Work* Entry(size_t counter, bool is_stop) const {
    const Work* found = nullptr;
    for (size_t i = counter; i < works_.size(); i += kRing) {
      const uint64_t written_ns = is_stop ? works_[i].stop_ns : works_[i].start_ns;
      if (written_ns > virtual_ns + kGpuOffsetNs) break;
      if (works_[i].is_profiled) found = &works_[i];
    }
    return found;
  }

  void Poll() {
    const bool gpu_is_done = round_ >= options_.rounds && Ended() == works_.size();
    const uint64_t works_late = kRing * options_.rings_late + options_.works_late;
    for (size_t i = 0; i < unread_.size(); ++i) {
      if (unread_[i].empty() || (options_.channels > 1 && random_() % 4 == 0)) continue;
      Part& next = unread_[i].front();
      const uint32_t channel = static_cast<uint32_t>(i) % options_.channels;
      if (works_late != 0 && !gpu_is_done && Ended() <= next.work + works_late) continue;
      if (!next.is_started) {
        const Work* entry = Entry(next.work, false);
        if (entry == nullptr) continue;
        communicator_->StartChannel(next.ticket, channel, entry->start_ns);
        next.is_started = true;
      } else if (const Work* entry = Entry(next.work, true)) {
        communicator_->StampChannel(next.ticket, channel, entry->stop_ns);
        communicator_->StopChannel(next.ticket, channel);
        unread_[i].pop_front();
        Compare();
      }
    }
  }

  // Whatever is new in the ring of recent completions.
  void Compare() {
    for (;; ++recorded_) {
      const layout::CompletionEntry& entry =
          slot_->completions[recorded_ % layout::kCompletionEntries];
      if (LoadRelaxed(entry.ticket) != recorded_ + 1) return;
      const Truth& truth = truths_.at(LoadRelaxed(entry.function_and_sequence) & 0xffffffff);
      wrong_ += LoadRelaxed(entry.start_ns) != truth.start_ns ||
                LoadRelaxed(entry.stop_ns) != truth.stop_ns;
    }
  }

  JobOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<Communicator> communicator_ = std::make_unique<Communicator>();
  std::vector<Work> works_;
  std::vector<Truth> truths_;             // by sequence
  std::vector<std::deque<Part>> unread_;  // of each channel; of Receives, apart
  std::deque<HostFunction> host_functions_;
  uint64_t host_ns_ = 0;
  uint64_t device_free_ns_ = 0;
  uint64_t until_ns_ = 0;
  bool is_held_up_ = false;
  bool is_waiting_ = false;
  int round_ = 0;
  size_t group_ = 0;
  size_t ended_ = 0;
  uint64_t operations_ = 0;
  uint64_t recorded_ = 0;
  uint64_t wrong_ = 0;
};

}  // namespace nccl_exporter::plugin
