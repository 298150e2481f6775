// SPDX-License-Identifier: Apache-2.0
// The part of SegmentTable that ends segments: those over, those that living ranks still wait for,
// and files set aside.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "collector/segments/segment_table.h"

namespace nccl_exporter::collector {
void SegmentTable::RemoveOver(const Moment& now) {
  FindWaiting(now);
  for (auto it = segments_.begin(); it != segments_.end();) {
    Followed& followed = it->second;
    if (!followed.segment.IsOver(now, retention_) || IsWaitedFor(followed, now) ||
        !MayRemove(followed.uid)) {
      ++it;
      continue;
    }
    const DirectoryEntry place = followed.place;
    if (!place.directory->files.Unlink(place.name, it->first)) {
      const std::string why = std::strerror(errno);
      SetAside aside{.place = place,
                     .uid = followed.uid,
                     .stamp = followed.segment.Stamp(),
                     .error = SegmentError::kUnlinkFailed,
                     .since_realtime_ns = {}};
      PutAside(it->first, std::move(aside), why);
    }
    it = Unfollow(it);
  }
}

// Files that never became a segment, or were none: when they are as old as the dead may be, and
// nobody holds them.
void SegmentTable::RemoveSetAside(const Moment& now) {
  for (auto it = set_aside_.begin(); it != set_aside_.end();) {
    SetAside& aside = it->second;
    const int64_t age_then_ns =
        aside.since_realtime_ns
            ? std::max<int64_t>(now.realtime_ns - (now.monotonic_ns - aside.since_monotonic_ns) -
                                    *aside.since_realtime_ns,
                                0)
            : 0;
    const bool is_over =
        aside.since_realtime_ns &&
        now.monotonic_ns - aside.since_monotonic_ns + age_then_ns > retention_.count();
    if (!is_over || !MayRemove(aside.uid)) {
      ++it;
      continue;
    }
    const FileKey key = it->first;
    aside.since_realtime_ns.reset();
    SegmentError error{};
    std::string detail;
    const SegmentDirectory& files = aside.place.directory->files;
    const std::optional<SegmentFile> file = files.OpenFile(aside.place.name, &error, &detail);
    const bool is_held = file && KeyOf(file->Status()) == key && file->FindWriter().is_alive;
    const bool has_changed = files.HasChanged(aside.place.name, aside.stamp);
    if (is_held || has_changed) {
      it = TakeUp(it);  // met again at the next listing
    } else if (aside.place.directory->files.Unlink(aside.place.name, key)) {
      it = TakeUp(it);
    } else {
      SetAside failed = aside;
      failed.error = SegmentError::kUnlinkFailed;
      detail = std::strerror(errno);
      ++it;
      PutAside(key, std::move(failed), detail);
    }
  }
}

// The communicators in which living ranks wait. Their segments are read for it, those of users with
// a dead process whose time is over.
void SegmentTable::FindWaiting(const Moment& now) {
  std::set<uint64_t> users;
  for (const auto& [key, followed] : segments_) {
    if (followed.segment.IsOver(now, retention_)) users.insert(followed.uid);
  }
  const bool is_due = !waiting_monotonic_ns_ ||
                      now.monotonic_ns - *waiting_monotonic_ns_ >= waiters_interval_.count();
  if (users.empty()) waiting_.clear(), waiting_monotonic_ns_.reset();
  if (users.empty() || !is_due) return;
  waiting_.clear();
  waiting_monotonic_ns_ = now.monotonic_ns;
  const auto is_read = [&](const Followed& followed) {
    return followed.segment.is_alive() && users.contains(followed.uid);
  };
  ShareCommunicators(
      now,
      [&](const FileKey&, const Followed& followed) {
        return is_read(followed) ? followed.segment.CommunicatorsWanted() : RoomWanted{};
      },
      [&](const FileKey&, Followed& followed, const ReadTerms& terms) {
        if (!is_read(followed)) return uint64_t{0};
        const SegmentRead read = followed.segment.Read(terms);
        if (!read.process) return read.Cost();
        for (const CommunicatorSnapshot& communicator : read.process->communicators) {
          const int64_t since_ns = communicator.oldest_unfinished_realtime_ns;
          const bool waits = since_ns != 0 && now.realtime_ns - since_ns >= waits_after_.count();
          if (communicator.has_identity && !communicator.is_closed && waits) {
            waiting_.insert(
                CommunicatorKeyOf(*read.process, communicator, read.process->GivenJob()));
          }
        }
        return read.Cost();
      });
}

bool SegmentTable::IsWaitedFor(const Followed& followed, const Moment& now) const {
  const ProcessSnapshot* const last = followed.segment.LastState();
  if (last == nullptr || followed.segment.IsOver(now, kLongestWait)) return false;
  return std::ranges::any_of(last->communicators, [&](const CommunicatorSnapshot& communicator) {
    return communicator.has_identity && !communicator.is_closed &&
           waiting_.contains(CommunicatorKeyOf(*last, communicator, last->GivenJob()));
  });
}

}  // namespace nccl_exporter::collector
