// SPDX-License-Identifier: Apache-2.0
#include "simulator/network/proxy_operation.h"

#include <algorithm>
#include <utility>

#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kBusyNs = 50;  // to the next call after one that did something

}  // namespace

ProxyOperation::ProxyOperation(bool is_send, std::vector<StepTimes> times, int overlap,
                               const Polling& polling, uint64_t bytes, uint64_t chunk_bytes)
    : is_send_(is_send),
      times_(std::move(times)),
      overlap_(static_cast<size_t>(overlap)),
      polling_(polling),
      marks_(times_.size()) {
  for (StepMarks& step : marks_) {
    step.bytes = std::min(bytes, chunk_bytes);
    bytes -= step.bytes;
  }
}

int64_t ProxyOperation::EndNs() const {
  return is_send_ ? times_.back().sent_ns : times_.back().consumed_ns;
}

int64_t ProxyOperation::RunUnseen(int64_t begin_ns) {
  std::vector<StepCall> unseen;
  int64_t end_ns = begin_ns;
  repeats_ = polling_.most_repeats;
  for (int64_t next_ns = begin_ns; next_ns < kNever;) {
    end_ns = next_ns;
    next_ns = Progress(end_ns, unseen);
    unseen.clear();
  }
  return IsDone() ? end_ns : kNever;
}

void ProxyOperation::Repeat(const StepCall& call, std::vector<StepCall>& calls) {
  if (repeats_++ < polling_.most_repeats) calls.push_back(call);
}

// 2.30.7 src/transport/net.cc sendProxyProgress: what is not possible falls through to the next.
bool ProxyOperation::ProgressSend(int64_t now_ns, std::vector<StepCall>& calls) {
  using enum StepCall::Kind;
  if (HasRoom()) {
    const int step = static_cast<int>(posted_);
    calls.push_back({kStart, step});
    calls.push_back({kRecord, step, EventState::kProxyStepSendGpuWait});
    marks_[posted_++].at_ns[0] = now_ns;
    return true;
  }
  if (transmitted_ < posted_ && times_[transmitted_].ready_ns <= now_ns) {
    const int step = static_cast<int>(transmitted_);
    StepMarks& marks = marks_[transmitted_];
    const StepCall waits{kRecord, step, EventState::kProxyStepSendPeerWait};
    const bool has_credit = times_[transmitted_].credit_ns <= now_ns;
    if (marks.at_ns[1] == StepMarks::kNotYet) {
      marks.at_ns[1] = now_ns;
      calls.push_back(waits);
    } else if (has_credit) {
      calls.push_back(waits);
    } else {
      Repeat(waits, calls);
    }
    if (has_credit) {
      calls.push_back({kRecord, step, EventState::kProxyStepSendWait});
      marks.at_ns[2] = now_ns;
      ++transmitted_;
      return true;
    }
  }
  if (done_ < transmitted_ && times_[done_].sent_ns <= now_ns) {
    calls.push_back({kStop, static_cast<int>(done_)});
    marks_[done_++].at_ns[3] = now_ns;
    return true;
  }
  return false;
}

// 2.30.7 src/transport/net.cc recvProxyProgress: it returns after the first of its parts that did
// something.
bool ProxyOperation::ProgressReceive(int64_t now_ns, std::vector<StepCall>& calls) {
  using enum StepCall::Kind;
  if (HasRoom()) {
    const int step = static_cast<int>(posted_);
    StepMarks& marks = marks_[posted_];
    const bool is_taken = times_[posted_].taken_ns <= now_ns;
    if (marks.at_ns[0] == StepMarks::kNotYet) {
      marks.at_ns[0] = now_ns;
      calls.push_back({kStart, step});
    } else if (is_taken) {
      calls.push_back({kStart, step});
    } else {
      Repeat({kStart, step}, calls);
    }
    if (is_taken) {
      calls.push_back({kRecord, step, EventState::kProxyStepRecvWait});
      marks.at_ns[1] = now_ns;
      ++posted_;
      return true;
    }
  }
  if (received_ < posted_ && times_[received_].received_ns <= now_ns) {
    calls.push_back({kRecord, static_cast<int>(received_), EventState::kProxyStepRecvFlushWait});
    marks_[received_++].at_ns[2] = now_ns;
    return true;
  }
  if (transmitted_ < received_ && times_[transmitted_].flushed_ns <= now_ns) {
    calls.push_back({kRecord, static_cast<int>(transmitted_), EventState::kProxyStepRecvGpuWait});
    marks_[transmitted_++].at_ns[3] = now_ns;
    return true;
  }
  bool is_any_done = false;
  while (done_ < transmitted_ && times_[done_].consumed_ns <= now_ns) {
    calls.push_back({kStop, static_cast<int>(done_)});
    marks_[done_++].at_ns[4] = now_ns;
    is_any_done = true;
  }
  return is_any_done;
}

// The next of the events that the operation waits for.
int64_t ProxyOperation::NextChangeNs() const {
  int64_t next_ns = kNever;
  if (is_send_) {
    if (transmitted_ < posted_) {
      const bool is_seen = marks_[transmitted_].at_ns[1] != StepMarks::kNotYet;
      next_ns = is_seen ? times_[transmitted_].credit_ns : times_[transmitted_].ready_ns;
    }
    if (done_ < transmitted_) next_ns = std::min(next_ns, times_[done_].sent_ns);
    return next_ns;
  }
  if (HasRoom()) next_ns = times_[posted_].taken_ns;
  if (received_ < posted_) next_ns = std::min(next_ns, times_[received_].received_ns);
  if (transmitted_ < received_) next_ns = std::min(next_ns, times_[transmitted_].flushed_ns);
  if (done_ < transmitted_) next_ns = std::min(next_ns, times_[done_].consumed_ns);
  return next_ns;
}

// Whether the next call reports again what the last one has reported.
bool ProxyOperation::Repeats(int64_t now_ns) const {
  if (repeats_ >= polling_.most_repeats) return false;
  if (is_send_)
    return transmitted_ < posted_ && marks_[transmitted_].at_ns[1] != StepMarks::kNotYet &&
           times_[transmitted_].credit_ns > now_ns;
  return HasRoom() && marks_[posted_].at_ns[0] != StepMarks::kNotYet;
}

int64_t ProxyOperation::Progress(int64_t now_ns, std::vector<StepCall>& calls) {
  const bool is_busy = is_send_ ? ProgressSend(now_ns, calls) : ProgressReceive(now_ns, calls);
  if (IsDone()) return kNever;
  if (is_busy) return now_ns + std::min(kBusyNs, polling_.interval_ns);
  if (Repeats(now_ns)) return now_ns + polling_.interval_ns;
  const int64_t change_ns = NextChangeNs();
  if (change_ns >= kNever) return kNever;
  const int64_t polls =
      (std::max(change_ns - now_ns, int64_t{1}) + polling_.interval_ns - 1) / polling_.interval_ns;
  return now_ns + polls * polling_.interval_ns;
}

}  // namespace nccl_exporter::sim
