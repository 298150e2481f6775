// SPDX-License-Identifier: Apache-2.0
// Life and afterlife of one segment.
#include "collector/segments/segment.h"

#include <algorithm>
#include <utility>

namespace nccl_exporter::collector {
namespace {

constexpr const char* kNoRoom =
    "too many communicators on the node: the last counts of a dead process are left out";

}  // namespace

void Segment::Observe() {
  writer_ = file_->FindWriter();
  if (!is_alive()) return;
  was_alive_ = true;
  is_left_out_ = false;
  exit_monotonic_ns_.reset();
}

uint64_t Segment::KeepLastState(const ReadTerms& terms, const FileErrors& errors) {
  if (is_alive()) return 0;
  // The lock was gone before this read begins: nothing is written any more, unless somebody copies
  // a file into its place.
  const FileStamp stamp = Stamp();
  const bool is_new = !exit_monotonic_ns_ || read_stamp_ != stamp;
  if ((is_new || IsReadDue(terms)) && !IsReadRecently(terms)) {
    Take(ReadSegment(*file_, terms), stamp, terms, errors);
    kept_monotonic_ns_ = terms.now.monotonic_ns;
    if (is_new) NoteExit(stamp, terms.now);
    return read_.Cost();
  }
  if (CommunicatorsKept() > terms.communicator_limit)
    GiveUpLastState(stamp, terms.communicator_limit, errors);
  return CommunicatorsKept();
}

// Whether a file that has not changed would be read with another result.
bool Segment::IsReadDue(const ReadTerms& terms) const {
  const bool is_stale = static_cast<uint64_t>(terms.now.monotonic_ns) >= read_.stale_at_ns;
  const bool is_hopeless =
      HadNoRoom() && !read_.lacked_slots && terms.communicator_limit <= read_limit_;
  return is_stale || (!read_.process && !is_hopeless);
}

bool Segment::IsReadRecently(const ReadTerms& terms) const {
  const bool is_known = read_.process || read_.fault;
  return is_known && kept_monotonic_ns_ &&
         terms.now.monotonic_ns - *kept_monotonic_ns_ <
             std::chrono::nanoseconds(kLastStateInterval).count();
}

void Segment::GiveUpLastState(const FileStamp& stamp, uint64_t limit, const FileErrors& errors) {
  read_.process.reset();
  read_.fault = SegmentFault{SegmentError::kTooManySegments, kNoRoom};
  read_limit_ = limit;
  counted_fault_.Count(SegmentError::kTooManySegments, kNoRoom, stamp, errors);
}

void Segment::Take(SegmentRead read, const FileStamp& stamp, const ReadTerms& terms,
                   const FileErrors& errors) {
  read_ = std::move(read);
  read_limit_ = terms.communicator_limit;
  read_stamp_ = stamp;
  is_left_out_ = false;
  is_usable_ = is_usable_ || read_.process;
  communicators_wanted_ = read_.process ? read_.room : HadNoRoom() ? kMaxCommunicators : 0;
  errors.Add(SegmentError::kChangedWhileRead, "a slot was claimed again", read_.changed_slots);
  if (read_.fault) counted_fault_.Count(read_.fault->error, read_.fault->detail, stamp, errors);
}

// The end of a writer that we saw alive is now. Of one that had ended before we came, the file
// tells the last sign of life: so a restarted collector goes on with the retention time instead of
// beginning it anew.
void Segment::NoteExit(const FileStamp& stamp, const Moment& now) {
  const int64_t last_sign_ns =
      std::max(read_.last_sign_of_life_realtime_ns, stamp.modified_realtime_ns);
  const int64_t age_ns = was_alive_ ? 0 : std::max<int64_t>(now.realtime_ns - last_sign_ns, 0);
  exit_monotonic_ns_ = now.monotonic_ns - age_ns;
}

bool Segment::IsOver(const Moment& now, std::chrono::nanoseconds retention) const {
  return exit_monotonic_ns_ && now.monotonic_ns - *exit_monotonic_ns_ > retention.count();
}

uint64_t Segment::AddTo(NodeSnapshot& snapshot, const std::string& name, SlotDirectory slots,
                        const ReadTerms& terms, const FileErrors& errors) {
  if (is_alive()) {
    const FileStamp stamp = Stamp();
    Take(ReadSegment(*file_, std::move(slots), terms), stamp, terms, errors);
  }
  const uint64_t cost = is_alive() ? read_.Cost() : CommunicatorsKept();
  if (read_.fault || !read_.process) {
    ++(read_.fault ? snapshot.segments.unusable : snapshot.segments.starting);
    return cost;
  }
  is_left_out_ = cost > terms.communicator_limit;
  if (is_left_out_) {
    counted_fault_.Count(SegmentError::kTooManySegments, kNoRoom, *read_stamp_, errors);
    ++snapshot.segments.unusable;
    return 0;
  }
  ++(is_alive() ? snapshot.segments.live : snapshot.segments.exited);
  ProcessSnapshot& process = snapshot.processes.emplace_back();
  if (is_alive()) {
    process = *std::exchange(read_.process, std::nullopt);
  } else {
    process = *read_.process;  // the last counts stay here
  }
  process.file = KeyOf(file_->Status());
  process.segment = name;
  process.is_alive = is_alive();
  process.is_stopped = IsStopped(writer_);
  return cost;
}

}  // namespace nccl_exporter::collector
