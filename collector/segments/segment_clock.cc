// SPDX-License-Identifier: Apache-2.0
// The part of Segment that finds out the clock and the process of a writer, and whether one that
// has lost its lock goes on. Any close of any descriptor of the file by the job drops the lock.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "collector/segments/segment.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {

// A restored process is another one: it has another PID. The process may end, and its PID be of
// another one, before /proc is read: the lock is looked at again.
void Segment::FindProcess() {
  if (writer_.pid == process_pid_) return;
  process_pid_ = writer_.pid;
  if (const std::optional<int64_t> offset_ns = ClockOffsetOf(writer_)) {
    clock_offset_ns_ = *offset_ns;
    ahead_ns_ = 0;
  }
  process_monotonic_ns_.reset();
  process_mark_ = MarkOf(process_pid_);
  if (file_->FindWriter().pid != process_pid_) process_mark_.reset();
}

// A plugin that fails at the start gives its file up.
bool Segment::IsPublished() const {
  uint64_t version = 0;
  file_->Read(offsetof(layout::SegmentHeader, version),
              std::as_writable_bytes(std::span(&version, 1)));
  return version != 0;
}

// A process that takes its lock and lets go of it again and again is looked for once a second.
bool Segment::GoesOn(const Moment& now, const std::set<pid_t>& writers) {
  if (!process_mark_ || writers.contains(process_pid_)) return false;
  if (!is_usable_ && !IsPublished()) return false;
  const int64_t interval_ns = std::chrono::nanoseconds(kLastStateInterval).count();
  if (!process_monotonic_ns_ || now.monotonic_ns - *process_monotonic_ns_ >= interval_ns) {
    process_monotonic_ns_ = now.monotonic_ns;
    is_process_there_ = MarkOf(process_pid_) == process_mark_;
  }
  return is_process_there_;
}

// Where the kernel does not report the offset, the latest time in the file shows it: a process that
// works writes the time again and again. A clock that is behind ours cannot be known in this way.
void Segment::TakeClock(const FileStamp& stamp, const FileErrors& errors) {
  if (read_.ahead_ns <= kFutureNs) return;
  Count(SegmentError::kForeignClock,
        "a time is " + std::to_string(read_.ahead_ns / 1'000'000'000) + " s in the future", stamp,
        errors);
  if (read_.ahead_ns <= static_cast<uint64_t>(kMostAheadNs - ahead_ns_))
    ahead_ns_ += static_cast<int64_t>(read_.ahead_ns);
}

// A time of creation in the future was read as now.
void Segment::KeepCreated(ProcessSnapshot& process, const Moment& now) {
  std::map<std::pair<uint32_t, uint64_t>, int64_t> kept;
  for (CommunicatorSnapshot& communicator : process.communicators) {
    const std::pair key(communicator.slot, communicator.generation);
    const auto known = created_realtime_ns_.find(key);
    if (known != created_realtime_ns_.end()) {
      communicator.created_realtime_ns = known->second;
    } else if (communicator.created_realtime_ns < now.realtime_ns) {
      continue;
    }
    kept.emplace(key, communicator.created_realtime_ns);
  }
  created_realtime_ns_ = std::move(kept);
}

void Segment::ObserveActivity(const Moment& now, std::chrono::nanoseconds retention) {
  const int64_t interval_ns = std::chrono::nanoseconds(kLastStateInterval).count();
  if (now.monotonic_ns - activity_monotonic_ns_ >= interval_ns) {
    activity_monotonic_ns_ = now.monotonic_ns;
    const uint64_t latest_ns = LatestActivity();
    if (latest_ns > activity_ns_) grown_monotonic_ns_ = now.monotonic_ns;
    activity_ns_ = std::max(activity_ns_, latest_ns);
  }
  if (grown_monotonic_ns_ && now.monotonic_ns - *grown_monotonic_ns_ > retention.count())
    grown_monotonic_ns_.reset();
}

// Chooses the times to look at, those of the communicators that were in use last. What they are now
// is no growth: a segment that is read with more room than before has other ones. `is_first`: there
// was none before, either; else growth that was not looked at yet remains to be seen.
void Segment::NoteActivity(bool is_first) {
  const bool has_grown = !is_first && LatestActivity() > activity_ns_;
  activity_offsets_.clear();
  if (!read_.process) return;
  std::vector<const CommunicatorSnapshot*> order;
  for (const CommunicatorSnapshot& communicator : read_.process->communicators) {
    if (!communicator.is_closed) order.push_back(&communicator);
  }
  std::ranges::stable_sort(order, std::ranges::greater{},
                           &CommunicatorSnapshot::last_progress_monotonic_ns);
  for (const CommunicatorSnapshot* communicator : order) {
    const uint64_t slot = read_.header_bytes + communicator->slot * read_.slot_bytes;
    for (size_t i = 0; i < kFunctionCount && activity_offsets_.size() < kActivityWords; ++i) {
      if (!communicator->functions.IsInUse(i)) continue;
      activity_offsets_.push_back(slot + offsetof(layout::CommunicatorSlot, functions) +
                                  i * sizeof(layout::FunctionBlock) +
                                  offsetof(layout::FunctionBlock, last_start_ns));
    }
  }
  if (!has_grown) activity_ns_ = LatestActivity();
}

uint64_t Segment::LatestActivity() const {
  uint64_t latest_ns = 0;
  for (const uint64_t offset : activity_offsets_) {
    uint64_t time_ns = 0;
    file_->Read(offset, std::as_writable_bytes(std::span(&time_ns, 1)));
    latest_ns = std::max(latest_ns, time_ns);
  }
  return latest_ns;
}

}  // namespace nccl_exporter::collector
