// SPDX-License-Identifier: Apache-2.0
// One segment as the collector follows it: while its writer lives it is read at every snapshot;
// when the writer has gone it is read once more, and these last counts are served until the
// retention time is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "collector/node_snapshot.h"
#include "collector/reader/segment_reader.h"
#include "collector/segments/segment_errors.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// How often the last counts of a dead process are read again: its owner may touch the file, or take
// and let go of its lock, without end. A read takes up to 80 ms, the whole room for communicators.
inline constexpr std::chrono::seconds kLastStateInterval{1};

class Segment {
 public:
  // `is_alive`: whether it had a writer when it was opened.
  Segment(SegmentFile file, bool is_alive)
      : file_(std::make_shared<const SegmentFile>(std::move(file))),
        writer_({.is_alive = is_alive}),
        was_alive_(is_alive) {}

  // Looks whether the writer lives.
  void Observe();

  // Makes sure that a dead writer's last counts have been read since; without room for them they
  // are given up. Returns what they take of the room for communicators. After Observe().
  uint64_t KeepLastState(const ReadTerms& terms, const FileErrors& errors);

  // Adds what the segment says to `snapshot`: its process, if there is room for its communicators,
  // and itself to the counts by state. `slots`: as just found, where the writer lives. Returns what
  // it took of that room. After KeepLastState().
  uint64_t AddTo(NodeSnapshot& snapshot, const std::string& name, SlotDirectory slots,
                 const ReadTerms& terms, const FileErrors& errors);

  // Whether the writer has been gone for longer than the retention time. After Observe(). The same
  // holds for a file that never became a segment or cannot be used: then it is what a dead process
  // left, and old.
  bool IsOver(const Moment& now, std::chrono::nanoseconds retention) const;

  // Whether there is, or was, more to it than a file that nobody holds and that cannot be read.
  bool IsServed() const { return is_alive() || is_usable_; }

  const std::shared_ptr<const SegmentFile>& file() const { return file_; }
  bool is_alive() const { return writer_.is_alive; }  // after Observe()

  // Why the latest read failed, or its result was left out of the latest snapshot.
  std::optional<SegmentError> Fault() const {
    if (is_left_out_) return SegmentError::kTooManySegments;
    return read_.fault ? std::optional(read_.fault->error) : std::nullopt;
  }

  // Room of the communicators in memory between snapshots: those of the last counts.
  uint64_t CommunicatorsKept() const { return read_.process ? read_.room : 0; }

  // What it would take of the room for communicators, as of the last read.
  uint64_t CommunicatorsWanted() const { return communicators_wanted_; }

  // The last counts of a dead process; null while it lives.
  const ProcessSnapshot* LastState() const {
    return !is_alive() && read_.process ? &*read_.process : nullptr;
  }

  FileStamp Stamp() const { return FileStamp(file_->Status()); }

 private:
  bool HadNoRoom() const {
    return read_.fault && read_.fault->error == SegmentError::kTooManySegments;
  }
  bool IsReadDue(const ReadTerms& terms) const;
  // What is touched again and again is not read again and again.
  bool IsReadRecently(const ReadTerms& terms) const;
  void Take(SegmentRead read, const FileStamp& stamp, const ReadTerms& terms,
            const FileErrors& errors);
  void GiveUpLastState(const FileStamp& stamp, uint64_t limit, const FileErrors& errors);
  void NoteExit(const FileStamp& stamp, const Moment& now);

  std::shared_ptr<const SegmentFile> file_;
  Writer writer_;           // at the latest Observe()
  bool was_alive_ = false;  // ever, as far as we have seen
  bool is_usable_ = false;  // was read with success at least once
  // The last counts are there, and there was no room for them in the latest snapshot.
  bool is_left_out_ = false;
  SegmentRead read_;         // the latest; without its process once that was handed on
  uint64_t read_limit_ = 0;  // of communicators, at the latest read
  uint64_t communicators_wanted_ = 0;
  std::optional<FileStamp> read_stamp_;
  std::optional<int64_t> kept_monotonic_ns_;  // when KeepLastState() read it
  std::optional<int64_t> exit_monotonic_ns_;  // set while the writer is gone
  CountedFault counted_fault_;
};

}  // namespace nccl_exporter::collector
