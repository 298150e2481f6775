// SPDX-License-Identifier: Apache-2.0
// Discovery, following and removal of segments.
#include "collector/segment_table.h"

#include <fcntl.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace nccl_exporter {

SegmentTable::SegmentTable(std::vector<std::string> directories, std::chrono::nanoseconds retention)
    : retention_(retention) {
  for (std::string& path : directories) {
    const auto is_same = [&](const Directory& directory) { return directory.files.path() == path; };
    if (std::ranges::any_of(directories_, is_same)) continue;
    directories_.push_back({.files = SegmentDirectory(std::move(path))});
  }
}

void SegmentTable::Refresh(const Moment& now) {
  ListWhereNeeded(now);
  Observe(now);
  RemoveOver(now);
}

void SegmentTable::ListWhereNeeded(const Moment& now) {
  constexpr int64_t kRescanNs = std::chrono::nanoseconds(kRescanInterval).count();
  const std::set<std::string> changed = watch_.TakeChanges();
  for (Directory& directory : directories_) {
    const bool is_due = now.monotonic_ns - directory.listed_monotonic_ns >= kRescanNs;
    if (directory.is_watched && !is_due && !changed.contains(directory.files.path())) continue;
    // Before listing, so that nothing slips through between the two.
    directory.is_watched = watch_.Watch(directory.files.path());
    directory.listed_monotonic_ns = now.monotonic_ns;
    List(directory);
  }
}

void SegmentTable::List(Directory& directory) {
  const auto unlist = [&](auto& files) {
    size_t count = 0;
    for (auto& [key, file] : files) {
      if (file.place.directory != &directory) continue;
      file.place.is_listed = false;
      ++count;
    }
    return count;
  };
  directory.followed = unlist(segments_);
  directory.set_aside = unlist(set_aside_);
  const bool was_full = std::exchange(directory.is_full, false);
  const auto listing = directory.files.List([&](int descriptor, const std::string& name, const struct stat& status) {
    Meet(directory, descriptor, name, status);
  });
  const bool was_unreadable = std::exchange(directory.is_unreadable, listing == SegmentDirectory::Listing::kUnreadable);
  if (directory.is_full && !was_full) errors_.Add(SegmentError::kTooManySegments);
  if (directory.is_unreadable && !was_unreadable) errors_.Add(SegmentError::kDirectoryUnreadable);
  if (!directory.is_unreadable) ForgetUnlisted();
}

void SegmentTable::Meet(Directory& directory, int descriptor, const std::string& name, const struct stat& status) {
  const FileKey key(status);
  if (const auto followed = segments_.find(key); followed != segments_.end()) {
    followed->second.place = {&directory, name};
    return;
  }
  const auto aside = set_aside_.find(key);
  if (aside != set_aside_.end()) {
    aside->second.place = {&directory, name};
    if (aside->second.error == SegmentError::kUnlinkFailed && aside->second.stamp == FileStamp(status)) {
      directory.files.Unlink(name, key);
      return;
    }
  }
  if (directory.followed >= kMaxSegments || (aside == set_aside_.end() && directory.set_aside >= kMaxSetAside)) {
    directory.is_full = true;
  } else {
    Open(directory, descriptor, name, status);
  }
}

void SegmentTable::Open(Directory& directory, int descriptor, const std::string& name, const struct stat& status) {
  SegmentError error = SegmentError::kNotARegularFile;
  std::string detail;
  std::optional<SegmentFile> file;
  if (S_ISREG(status.st_mode)) file = SegmentFile::Open(descriptor, name, &error, &detail);
  struct stat status_after {};
  if (!file && ::fstatat(descriptor, name.c_str(), &status_after, AT_SYMLINK_NOFOLLOW) != 0) return;  // just unlinked
  if (!file) return PutAside(FileKey(status), {&directory, name}, FileStamp(status), error);
  set_aside_.erase(FileKey(status));
  const FileKey key(file->Status());  // if the name has changed hands since, the file that is open counts
  segments_.try_emplace(key, Followed{.place = {&directory, name}, .segment = Segment(std::move(*file))});
  ++directory.followed;
}

void SegmentTable::PutAside(const FileKey& key, Place place, const FileStamp& stamp, SegmentError error) {
  const auto known = set_aside_.find(key);
  if (known == set_aside_.end() || known->second.stamp != stamp || known->second.error != error) errors_.Add(error);
  if (known == set_aside_.end()) ++place.directory->set_aside;
  set_aside_.insert_or_assign(key, SetAside{.place = std::move(place), .stamp = stamp, .error = error});
}

// What is served is served to its end, also without a name: somebody may have tidied up.
void SegmentTable::ForgetUnlisted() {
  std::erase_if(set_aside_, [](const auto& entry) { return !entry.second.place.is_listed; });
  std::erase_if(segments_,
                [](const auto& entry) { return !entry.second.place.is_listed && !entry.second.segment.IsServed(); });
}

ReadTerms SegmentTable::Terms(const Moment& now, uint64_t communicators_taken) const {
  return {.now = now,
          .retention = retention_,
          .communicator_limit = kMaxCommunicators - std::min(communicators_taken, kMaxCommunicators)};
}

void SegmentTable::Observe(const Moment& now) {
  uint64_t communicators = 0;
  for (auto& [key, followed] : segments_) {
    followed.segment.Observe(Terms(now, communicators), errors_);
    communicators += followed.segment.CommunicatorsKept();
  }
}

void SegmentTable::RemoveOver(const Moment& now) {
  for (auto it = segments_.begin(); it != segments_.end();) {
    const auto& [place, segment] = it->second;
    if (!segment.IsOver(now, retention_)) {
      ++it;
      continue;
    }
    if (!place.directory->files.Unlink(place.name, it->first)) {
      PutAside(it->first, place, segment.Stamp(), SegmentError::kUnlinkFailed);
    }
    it = segments_.erase(it);
  }
}

void SegmentTable::ForEach(const Visit& visit) const {
  for (const auto& [key, followed] : segments_) visit(key, followed.segment.file(), followed.segment.is_alive());
}

NodeSnapshot SegmentTable::Snapshot(const Moment& now, const Complete& complete) {
  Refresh(now);
  NodeSnapshot snapshot;
  snapshot.taken_realtime_ns = now.realtime_ns;
  uint64_t communicators = 0;
  for (auto& [key, followed] : segments_) {
    const size_t processes = snapshot.processes.size();
    communicators += followed.segment.AddTo(snapshot, followed.place.name, Terms(now, communicators), errors_);
    if (complete && snapshot.processes.size() != processes) complete(key, snapshot.processes.back());
  }
  for (const auto& [key, file] : set_aside_) {
    if (file.error != SegmentError::kUnlinkFailed) ++snapshot.segments.unusable;
  }
  std::ranges::sort(snapshot.processes, {}, [](const ProcessSnapshot& process) {
    return std::tuple<int64_t, const std::string&>(process.start_realtime_ns, process.segment);
  });
  snapshot.segment_errors = errors_.values();
  return snapshot;
}

}  // namespace nccl_exporter
