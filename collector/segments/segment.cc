// SPDX-License-Identifier: Apache-2.0
// Life and afterlife of one segment; segment_clock.cc has the clock and the signs of life of its
// writer.
#include "collector/segments/segment.h"

#include <algorithm>
#include <utility>

namespace nccl_exporter::collector {
namespace {

// Leaves the communicators that there is room for: those in use first, the oldest first. Returns
// the room that they take.
uint64_t FitInto(uint64_t limit, ProcessSnapshot& process) {
  uint64_t taken = 0;
  std::vector<CommunicatorSnapshot> all = std::exchange(process.communicators, {});
  std::ranges::stable_sort(all, {}, [](const CommunicatorSnapshot& communicator) {
    return std::pair(communicator.is_closed, communicator.created_realtime_ns);
  });
  for (CommunicatorSnapshot& communicator : all) {
    const uint64_t room = RoomOf(communicator);
    if (room <= limit) {
      limit -= room;
      taken += room;
      process.communicators.push_back(std::move(communicator));
    } else {
      limit = 0;
      ++(communicator.is_closed ? process.unread_finalized : process.unread_in_use);
    }
  }
  std::ranges::sort(process.communicators, {}, &CommunicatorSnapshot::slot);
  return taken;
}

}  // namespace

pid_t Segment::LookAtLock() {
  writer_ = file_->FindWriter();
  return writer_.pid;
}

void Segment::Observe(const Moment& now, std::chrono::nanoseconds retention,
                      const std::set<pid_t>& writers) {
  goes_on_ = !writer_.is_alive && GoesOn(now, writers);
  if (writer_.is_alive) {
    FindProcess();
  } else if (goes_on_) {
    writer_.pid = process_pid_;
  }
  if (writer_.is_alive || goes_on_) {
    grown_monotonic_ns_.reset();
    activity_offsets_.clear();
  } else {
    ObserveActivity(now, retention);
  }
  if (!is_alive()) return;
  was_alive_ = true;
  exit_monotonic_ns_.reset();
}

uint64_t Segment::KeepLastState(const ReadTerms& terms, const FileErrors& errors) {
  if (is_alive()) return 0;
  // The lock was gone before this read begins: nothing is written any more, unless the lock was
  // lost, or another program copies a file into its place.
  const FileStamp stamp = Stamp();
  const bool is_new = !exit_monotonic_ns_ || read_stamp_ != stamp;
  // The user's next process makes the file read-only: that is no sign of life.
  const bool has_written = !exit_monotonic_ns_ || !read_stamp_ || !read_stamp_->HasContentOf(stamp);
  if ((is_new || IsReadDue(terms)) && !IsReadRecently(terms)) {
    Take(Read(terms), stamp, terms, errors);
    kept_monotonic_ns_ = terms.now.monotonic_ns;
    if (has_written) NoteExit(stamp, terms.now);
    NoteActivity(is_new);
    return read_.Cost();
  }
  if (CommunicatorsKept() > terms.communicator_limit) {
    read_.room = FitInto(terms.communicator_limit, *read_.process);
    read_limit_ = terms.communicator_limit;
  }
  return CommunicatorsKept();
}

// Whether a file that has not changed would be read with another result.
bool Segment::IsReadDue(const ReadTerms& terms) const {
  if (static_cast<uint64_t>(terms.now.monotonic_ns) >= read_.stale_at_ns || !read_.process)
    return true;
  const bool is_cut = read_.process->unread_in_use + read_.process->unread_finalized != 0;
  return is_cut && (read_.lacked_slots || terms.communicator_limit > read_limit_);
}

bool Segment::IsReadRecently(const ReadTerms& terms) const {
  const bool is_known = read_.process || read_.fault;
  return is_known && kept_monotonic_ns_ &&
         terms.now.monotonic_ns - *kept_monotonic_ns_ <
             std::chrono::nanoseconds(kLastStateInterval).count();
}

void Segment::Take(SegmentRead read, const FileStamp& stamp, const ReadTerms& terms,
                   const FileErrors& errors) {
  read_ = std::move(read);
  read_limit_ = terms.communicator_limit;
  read_stamp_ = stamp;
  if (!read_.process && !read_.fault) NoteUnpublished(stamp, terms.now);
  is_usable_ = is_usable_ || read_.process;
  if (read_.process) KeepCreated(*read_.process, terms.now);
  TakeClock(stamp, errors);
  errors.Add(SegmentError::kChangedWhileRead, "a slot was claimed again", read_.changed_slots);
  if (read_.fault) Count(read_.fault->error, read_.fault->detail, stamp, errors);
}

// A segment that was read once has been emptied if it has no version any more. One that never had
// any is made within milliseconds.
void Segment::NoteUnpublished(const FileStamp& stamp, const Moment& now) {
  const auto emptied = [&](std::string detail) {
    read_.fault = SegmentFault{.error = SegmentError::kTruncated, .detail = std::move(detail)};
  };
  if (!unpublished_monotonic_ns_) unpublished_monotonic_ns_ = now.monotonic_ns;
  const int64_t age_ns = now.monotonic_ns - *unpublished_monotonic_ns_;
  if (is_usable_) {
    emptied(stamp.bytes == 0 ? "the file was emptied" : "the header is zero");
  } else if (writer_.is_alive && age_ns > std::chrono::nanoseconds(kLongestStart).count()) {
    emptied("no header after " + std::to_string(kLongestStart.count()) + " s");
  }
}

// The end of a writer that we saw alive is now. Of one that had ended before we came, the file has
// the last sign of life: so a restarted collector goes on with the retention time instead of
// beginning it again.
void Segment::NoteExit(const FileStamp& stamp, const Moment& now) {
  const int64_t last_sign_ns =
      std::max(read_.last_sign_of_life_realtime_ns, stamp.modified_realtime_ns);
  const int64_t age_ns = was_alive_ ? 0 : std::max<int64_t>(now.realtime_ns - last_sign_ns, 0);
  exit_monotonic_ns_ = now.monotonic_ns - age_ns;
}

bool Segment::IsOver(const Moment& now, std::chrono::nanoseconds retention) const {
  return exit_monotonic_ns_ && now.monotonic_ns - *exit_monotonic_ns_ > retention.count();
}

std::vector<SegmentError> Segment::Faults() const {
  std::vector<SegmentError> faults;
  if (read_.fault) faults.push_back(read_.fault->error);
  if (is_cut_) faults.push_back(SegmentError::kTooManySegments);
  if (HasLostLock()) faults.push_back(SegmentError::kLockLost);
  if (ahead_ns_ != 0 || read_.ahead_ns > kFutureNs) faults.push_back(SegmentError::kForeignClock);
  return faults;
}

uint64_t Segment::AddTo(NodeSnapshot& snapshot, const std::string& name, SlotDirectory slots,
                        const ReadTerms& terms, const FileErrors& errors) {
  is_cut_ = false;
  if (is_alive())
    Take(ReadSegment(*file_, std::move(slots), WithClock(terms)), Stamp(), terms, errors);
  uint64_t cost = is_alive() ? read_.Cost() : CommunicatorsKept();
  if (read_.fault || !read_.process) {
    ++(read_.fault ? snapshot.segments.unusable : snapshot.segments.starting);
    return cost;
  }
  ++(is_alive() ? snapshot.segments.live : snapshot.segments.exited);
  ProcessSnapshot& process = snapshot.processes.emplace_back();
  if (grown_monotonic_ns_) NoteActivity(false);
  if (is_alive()) {
    process = *std::exchange(read_.process, std::nullopt);
  } else {
    process = *read_.process;  // the last counts stay here
    if (cost > terms.communicator_limit) cost = FitInto(terms.communicator_limit, process);
  }
  process.file = KeyOf(file_->Status());
  process.segment = name;
  process.is_alive = is_alive();
  process.has_lost_lock = HasLostLock();
  process.is_stopped = IsStopped(writer_);
  if (is_alive() && process_mark_) process.seen_pid = process_pid_;
  is_cut_ = is_alive() && process.unread_in_use != 0;
  if (is_cut_)
    Count(SegmentError::kTooManySegments,
          "no room for " + std::to_string(process.unread_in_use) + " or more communicators in use",
          *read_stamp_, errors);
  if (HasLostLock())
    Count(SegmentError::kLockLost, "the job has closed a descriptor of the file", *read_stamp_,
          errors);
  return cost;
}

}  // namespace nccl_exporter::collector
