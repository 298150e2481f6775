// SPDX-License-Identifier: Apache-2.0
// The part of SegmentTable that finds directories in others: subdirectories of the shared ones, of
// which each pod, container or job may have one, so that no other reaches its segments; and private
// directories of users.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "collector/segments/segment_table.h"

namespace nccl_exporter::collector {
namespace {

// Whose directory has files of any user, and no links to other files.
bool IsTrusted(uint64_t uid) { return uid == 0 || uid == ::geteuid(); }

bool HasNames(const SegmentDirectory& directory) {
  DirectoryNames names = directory.OpenNames();
  while (names.is_open() && names.count() <= kNamesOfEmpty && names.Next() != nullptr) continue;
  return names.count() > kNamesOfEmpty;
}

}  // namespace

// Whether no file of it is known, and none is being looked for.
bool SegmentTable::IsUnused(const Directory& directory) const {
  const auto is_of = [&](const auto& entry) { return entry.second.place.directory == &directory; };
  return directory.files.is_found() && !directory.listing &&
         std::ranges::none_of(segments_, is_of) && std::ranges::none_of(set_aside_, is_of);
}

std::list<SegmentTable::Directory>::iterator SegmentTable::Forget(
    std::list<Directory>::iterator directory) {
  watch_.Forget(directory->files.path());
  known_.erase(directory->files.path());
  if (directory->is_subdirectory) TakeOne(subdirectories_of_, directory->uid);
  return directories_.erase(directory);
}

// Those that are gone, and that no file is known of any more.
void SegmentTable::ForgetFound() {
  for (auto it = directories_.begin(); it != directories_.end();)
    it = it->is_missing && IsUnused(*it) ? Forget(it) : std::next(it);
}

// Gives up an empty directory of those that share the room of `uid`. False if there is none.
bool SegmentTable::ForgetAnEmptyOne(uint64_t uid) {
  const auto found = std::ranges::find_if(directories_, [&](const Directory& directory) {
    return directory.is_subdirectory && directory.begun_monotonic_ns && !directory.has_changed &&
           directory.names_listed <= kNamesOfEmpty &&
           (IsTrusted(uid) ? IsTrusted(directory.uid) : directory.uid == uid) &&
           IsUnused(directory);
  });
  if (found == directories_.end()) return false;
  Forget(found);
  return true;
}

std::map<uint64_t, int64_t> SegmentTable::NamesOfSubdirectories() const {
  std::map<uint64_t, int64_t> names;
  for (const Directory& directory : directories_) {
    if (directory.is_subdirectory) names[directory.uid] += directory.names_listed;
  }
  return names;
}

bool SegmentTable::HasRoomForSubdirectory(uint64_t uid) const {
  const size_t count = NumberOf(subdirectories_of_, uid);
  if (IsTrusted(uid)) return count < kMaxSubdirectories;
  if (count >= kMaxSubdirectoriesPerUser) return false;
  size_t of_others = 0;
  for (const auto& [other, number] : subdirectories_of_) of_others += IsTrusted(other) ? 0 : number;
  return of_others < kMaxSubdirectories;
}

// A user's directory has his own files only: a link to another's is none. Where there is no room an
// empty directory gives way to one that has files, and is looked at again with each listing: a
// prolog makes one for each job, and they stay for a day.
void SegmentTable::OnSubdirectory(Directory& directory, const std::string& name,
                                  const struct stat& status, int64_t& effort) {
  std::string path = directory.files.path() + '/' + name;
  if (name.starts_with('.') || known_.contains(path)) return;
  const uint64_t uid = status.st_uid;
  const auto owner = IsTrusted(uid) ? std::nullopt : std::optional(uid);
  SegmentDirectory files = SegmentDirectory::Found(path, owner);
  if (!HasRoomForSubdirectory(uid)) {
    effort -= kNamesPerOpen;
    if (!HasNames(files)) return;
    if (!ForgetAnEmptyOne(uid)) return Refuse(directory, name, uid);
  }
  known_.insert(std::move(path));
  ++subdirectories_of_[uid];
  directories_.push_back({.files = std::move(files),
                          .is_subdirectory = true,
                          .is_initial = !directory.begun_monotonic_ns,
                          .uid = uid,
                          .listing = Listing()});
}

// The plugin makes one where there is no shared directory. It counts if it belongs to the user in
// its name, and nobody else writes to it.
void SegmentTable::OnPrivateDirectory(Directory& directory, const std::string& name,
                                      const struct stat& status) {
  const uint64_t uid = status.st_uid;
  std::string path = directory.files.path() + '/' + name;
  if (name != directory.private_prefix + std::to_string(uid) || known_.contains(path) ||
      (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return;
  // The first one without room is named, and no further one is looked at.
  if (!directory.listing->refused.empty()) return;
  const auto is_one = [](const Directory& each) {
    return !each.is_subdirectory && each.private_prefix.empty();
  };
  const auto count = static_cast<size_t>(std::ranges::count_if(directories_, is_one));
  if (count >= kMaxPrivateDirectories) return Refuse(directory, name, uid);
  known_.insert(path);
  directories_.push_back(
      {.files = SegmentDirectory::Found(std::move(path), uid), .uid = uid, .listing = Listing()});
}

// Kubelet makes the directory of a subPath with the permissions of the directory around it, but
// without the sticky bit: any user who may write to it could remove others' files.
void SegmentTable::PrepareSubdirectory(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !IsTrusted(status.st_uid)) return;
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (status.st_mode & S_ISVTX) == 0)
    ::fchmod(descriptor, (status.st_mode & 07777) | S_ISVTX);
}

void SegmentTable::RemoveIfOld(const Directory& directory, const Moment& now) {
  struct stat status {};
  if (::fstat(directory.listing->names.descriptor(), &status) != 0) return;
  const int64_t age_ns = now.realtime_ns - FileStamp(status).modified_realtime_ns;
  if (age_ns > std::chrono::nanoseconds(kEmptyDirectoryAge).count())
    directory.files.RemoveIfEmpty();
}

}  // namespace nccl_exporter::collector
