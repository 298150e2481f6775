// SPDX-License-Identifier: Apache-2.0
// One segment as the collector follows it: while its writer lives it is read at every snapshot;
// when the writer has gone it is read once more, and these last counts are served until the
// retention time is over. A writer that has lost its lock has not gone while its process is there,
// or, where the process cannot be seen, while its counters grow.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "collector/reader/segment_reader.h"
#include "collector/segments/room_shares.h"
#include "collector/segments/segment_errors.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// Interval in which the last counts of a dead process are read again: its owner may touch the file,
// or take and let go of its lock, without end. A read takes up to 180 ms, the whole room for
// communicators.
inline constexpr std::chrono::seconds kLastStateInterval{1};

// Times of functions that are looked at, as often, to see whether a process without its lock goes
// on: 1 us each, of the communicators that were in use last.
inline constexpr size_t kActivityWords = 8;

// A segment whose lock is held has its header within milliseconds. Its writer may be stopped
// before.
inline constexpr std::chrono::seconds kLongestStart{60};

// A clock is not set further ahead than this: 10 years. What claims to be is no time.
inline constexpr int64_t kMostAheadNs = 315'360'000'000'000'000;

class Segment {
 public:
  // `is_alive`: whether it had a writer when it was opened.
  Segment(SegmentFile file, bool is_alive)
      : file_(std::make_shared<const SegmentFile>(std::move(file))),
        writer_({.is_alive = is_alive}),
        was_alive_(is_alive) {}

  // The process that holds the lock now, if it is one of our PID namespace; else 0.
  pid_t LookAtLock();

  // Finds out whether the writer lives. One that has lost its lock does if its process is there, as
  // it was seen with the lock, or if its counters have grown within the retention time. After
  // LookAtLock(). `writers`: what all segments have returned there. A process that has locked
  // another segment is not asked for, as it may have got here by exec.
  void Observe(const Moment& now, std::chrono::nanoseconds retention,
               const std::set<pid_t>& writers);

  // Makes sure that a dead writer's last counts have been read since; those without room are given
  // up. Returns what they take of the room for communicators. After Observe().
  uint64_t KeepLastState(const ReadTerms& terms, const FileErrors& errors);

  // Adds what the segment says to `snapshot`: its process, with the communicators that there is
  // room for, and itself to the counts by state. `slots`: as just found, where the writer lives.
  // Returns what it took of that room. After KeepLastState().
  uint64_t AddTo(NodeSnapshot& snapshot, const std::string& name, SlotDirectory slots,
                 const ReadTerms& terms, const FileErrors& errors);

  // Reads the segment as it is, and keeps nothing of it.
  SegmentRead Read(const ReadTerms& terms) const { return ReadSegment(*file_, WithClock(terms)); }

  // Whether the writer has been gone for longer than the retention time. After Observe(). The same
  // holds for a file that never became a segment or cannot be used: then it is what a dead process
  // left, and old.
  bool IsOver(const Moment& now, std::chrono::nanoseconds retention) const;

  // Whether there is, or was, more to it than a file that nobody holds and that cannot be read.
  bool IsServed() const { return is_alive() || is_usable_; }

  const std::shared_ptr<const SegmentFile>& file() const { return file_; }
  bool is_alive() const { return writer_.is_alive || HasLostLock(); }  // after Observe()
  bool HasLostLock() const { return goes_on_ || grown_monotonic_ns_.has_value(); }
  int64_t ClockOffsetNs() const { return clock_offset_ns_ + ahead_ns_; }

  // Faults of the segment, as of the latest read and snapshot.
  std::vector<SegmentError> Faults() const;

  // Room of the communicators in memory between snapshots: those of the last counts.
  uint64_t CommunicatorsKept() const { return read_.process ? read_.room : 0; }

  // Room for communicators that the segment would take, as of the last read.
  RoomWanted CommunicatorsWanted() const {
    return is_alive() ? RoomWanted{read_.wanted_in_use, 0, read_.wanted_finalized, 0}
                      : RoomWanted{0, read_.wanted_in_use, 0, read_.wanted_finalized};
  }
  uint64_t SlotsWanted() const { return read_.slots; }

  // The last counts of a dead process; null while it lives.
  const ProcessSnapshot* LastState() const {
    return !is_alive() && read_.process ? &*read_.process : nullptr;
  }

  FileStamp Stamp() const { return FileStamp(file_->Status()); }

 private:
  ReadTerms WithClock(ReadTerms terms) const {
    terms.clock_offset_ns = ClockOffsetNs();
    return terms;
  }
  void FindProcess();
  bool IsPublished() const;
  bool GoesOn(const Moment& now, const std::set<pid_t>& writers);
  void ObserveActivity(const Moment& now, std::chrono::nanoseconds retention);
  void NoteActivity(bool is_first);
  uint64_t LatestActivity() const;
  bool IsReadDue(const ReadTerms& terms) const;
  // Whether a read is recent enough: a file that is touched again and again is not read each time.
  bool IsReadRecently(const ReadTerms& terms) const;
  void Take(SegmentRead read, const FileStamp& stamp, const ReadTerms& terms,
            const FileErrors& errors);
  void NoteUnpublished(const FileStamp& stamp, const Moment& now);
  void TakeClock(const FileStamp& stamp, const FileErrors& errors);
  void KeepCreated(ProcessSnapshot& process, const Moment& now);
  void NoteExit(const FileStamp& stamp, const Moment& now);
  void Count(SegmentError error, const std::string& detail, const FileStamp& stamp,
             const FileErrors& errors) {
    counted_faults_[static_cast<size_t>(error)].Count(error, detail, stamp, errors);
  }

  std::shared_ptr<const SegmentFile> file_;
  Writer writer_;                                    // at the latest Observe()
  bool was_alive_ = false;                           // ever, as far as we have seen
  bool is_usable_ = false;                           // was read with success at least once
  std::optional<int64_t> unpublished_monotonic_ns_;  // first seen without a version
  // Communicators in use were left out of the latest snapshot.
  bool is_cut_ = false;
  SegmentRead read_;         // the latest; without its process once that was handed on
  uint64_t read_limit_ = 0;  // of communicators, at the latest read
  std::optional<FileStamp> read_stamp_;
  std::optional<int64_t> kept_monotonic_ns_;  // when KeepLastState() read it
  std::optional<int64_t> exit_monotonic_ns_;  // set while the writer is gone
  // The process that was seen with the lock; without a mark if it cannot be known again.
  pid_t process_pid_ = 0;
  std::optional<ProcessMark> process_mark_;
  std::optional<int64_t> process_monotonic_ns_;  // when it was looked for without the lock
  bool is_process_there_ = false;                // as of then
  bool goes_on_ = false;                         // it is there, and the lock is not
  // Signs of life of a writer without a lock whose process is not seen: places of times in the
  // file, the latest of them, when they were looked at, and when they were last seen to have grown.
  std::vector<uint64_t> activity_offsets_;
  uint64_t activity_ns_ = 0;
  int64_t activity_monotonic_ns_ = 0;
  std::optional<int64_t> grown_monotonic_ns_;
  int64_t clock_offset_ns_ = 0;  // as the kernel reports
  int64_t ahead_ns_ = 0;         // as the times in the file show, beside it
  // Times of creation that were in the future, by slot and generation: they stay where they were
  // put first. The clock of the node was set back.
  std::map<std::pair<uint32_t, uint64_t>, int64_t> created_realtime_ns_;
  std::array<CountedFault, kCountOf<SegmentError>> counted_faults_;
};

}  // namespace nccl_exporter::collector
