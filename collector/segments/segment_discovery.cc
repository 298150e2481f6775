// SPDX-License-Identifier: Apache-2.0
// The part of SegmentTable that finds segments: directories are listed part by part, and what is
// met there is opened.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "collector/segments/segment_table.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {
namespace {

int64_t Nanoseconds(std::chrono::nanoseconds time) { return time.count(); }

// For how long a directory of so many names is left alone after a listing.
int64_t RestAfter(int64_t names) {
  return names > kNamesAtEase ? names * Nanoseconds(kRestPerName) : 0;
}

// Kind of a file by its first bytes.
enum class Content : uint8_t { kPublished, kNothing, kForeign };

Content ContentOf(const SegmentFile& file) {
  static_assert(offsetof(layout::SegmentHeader, version) == 0 &&
                offsetof(layout::SegmentHeader, magic) == 8);
  std::array<uint64_t, 2> words{};  // version and magic
  file.Read(0, std::as_writable_bytes(std::span(words)));
  if (words[0] == 0) return Content::kNothing;
  return words[1] == layout::kMagic ? Content::kPublished : Content::kForeign;
}

}  // namespace

// Begins the searches that are due, and does the first part of them.
void SegmentTable::Discover(const Moment& now) {
  ForgetFound();
  const std::map<uint64_t, int64_t> names_of = NamesOfSubdirectories();
  const std::set<std::string> changed = watch_.TakeChanges();
  for (Directory& directory : directories_) {
    directory.has_changed = directory.has_changed || changed.contains(directory.files.path());
    const int64_t names =
        directory.is_subdirectory ? names_of.at(directory.uid) : directory.names_listed;
    if (!directory.listing && MustList(directory, names, now)) directory.listing.emplace();
  }
  DiscoverMore(now);
}

// A change that the kernel has reported is followed at once, unless there are so many names that
// their owner could keep us busy with them: `names`, of the directory or of all subdirectories of a
// user.
bool SegmentTable::MustList(const Directory& directory, int64_t names, const Moment& now) const {
  if (!directory.begun_monotonic_ns) return true;
  const int64_t age_ns = now.monotonic_ns - directory.ended_monotonic_ns;
  if (age_ns < RestAfter(names)) return false;
  if (!directory.private_prefix.empty()) return age_ns >= Nanoseconds(kPrivateDirectoriesInterval);
  return directory.has_changed || !directory.is_watched || age_ns >= Nanoseconds(kRescanInterval);
}

// Directories take turns, so that a large one keeps none waiting. A subdirectory, which is not
// large, is listed to its end, so that few are open at a time.
void SegmentTable::DiscoverMore(const Moment& now) {
  errors_.SetNow(now.realtime_ns);
  int64_t effort = kNamesPerPart;
  for (size_t turns = directories_.size(); turns > 0 && effort > 0; --turns) {
    Directory& directory = directories_.front();
    directories_.splice(directories_.end(), directories_, directories_.begin());
    if (directory.listing) List(directory, effort, now);
    if (directory.is_subdirectory && directory.listing && directory.listing->names.is_open())
      directories_.splice(directories_.begin(), directories_, std::prev(directories_.end()));
  }
  const auto is_known = [](const Directory& each) {
    return each.begun_monotonic_ns.has_value() || !each.is_initial;
  };
  has_listed_all_ = has_listed_all_ || std::ranges::all_of(directories_, is_known);
}

bool SegmentTable::IsDiscovering() const {
  return std::ranges::any_of(directories_,
                             [](const auto& each) { return each.listing.has_value(); });
}

// Up to which time every segment that was made is known. Where the kernel reports changes, that is
// now.
int64_t SegmentTable::KnownUntil(const Moment& now) const {
  int64_t until_ns = now.monotonic_ns;
  for (const Directory& directory : directories_) {
    const bool is_quiet = directory.is_watched && !directory.has_changed && !directory.listing;
    if (is_quiet || !directory.private_prefix.empty()) continue;
    until_ns = std::min(until_ns, directory.begun_monotonic_ns.value_or(INT64_MIN));
  }
  return until_ns;
}

void SegmentTable::List(Directory& directory, int64_t& effort, const Moment& now) {
  Listing& listing = *directory.listing;
  if (!listing.names.is_open()) {
    // Before the first name, so that nothing slips through between the two.
    listing.names = directory.files.OpenNames();
    const int opened = listing.names.is_open() ? listing.names.descriptor() : -1;
    const bool is_found = directory.files.is_found();
    directory.is_watched = directory.private_prefix.empty() && (opened >= 0 || !is_found) &&
                           watch_.Watch(directory.files.path(), is_found ? opened : -1);
    if (directory.is_subdirectory && opened >= 0) PrepareSubdirectory(opened);
    directory.has_changed = false;
    ++directory.listings;
    listing.begun_monotonic_ns = now.monotonic_ns;
  }
  const auto visit = [&](int descriptor, const std::string& name, const struct stat& status) {
    OnFound(directory, descriptor, name, status, effort, now);
  };
  SegmentDirectory::Visit visit_directory;
  if (!directory.files.is_found()) {
    visit_directory = [&](int, const std::string& name, const struct stat& status) {
      if (!directory.private_prefix.empty()) return OnPrivateDirectory(directory, name, status);
      OnSubdirectory(directory, name, status, effort);
    };
  }
  SegmentDirectory::Listing result =
      directory.files.List(listing.names, effort, visit, visit_directory, directory.private_prefix);
  const int error = errno;
  if (directory.is_subdirectory && listing.names.is_open() &&
      listing.names.count() >= kNamesPerSubdirectory)
    result = SegmentDirectory::Listing::kComplete;
  const bool is_empty = result == SegmentDirectory::Listing::kComplete && listing.names.is_open() &&
                        listing.names.count() <= kNamesOfEmpty;
  if (directory.is_subdirectory && is_empty) RemoveIfOld(directory, now);
  if (result != SegmentDirectory::Listing::kPartial) EndListing(directory, result, error, now);
}

// A directory that cannot be read keeps its segments: they are open already.
void SegmentTable::EndListing(Directory& directory, SegmentDirectory::Listing result, int error,
                              const Moment& now) {
  directory.names_listed = directory.listing->names.count();
  directory.begun_monotonic_ns = directory.listing->begun_monotonic_ns;
  directory.ended_monotonic_ns = now.monotonic_ns;
  directory.refused = std::move(directory.listing->refused);
  directory.listing.reset();
  directory.is_missing = result == SegmentDirectory::Listing::kMissing;
  const bool is_unreadable = result == SegmentDirectory::Listing::kUnreadable;
  const bool was_unreadable =
      std::exchange(directory.is_unreadable, is_unreadable && directory.private_prefix.empty());
  if (directory.is_unreadable && !was_unreadable) {
    struct stat status {};
    // Where even that fails, root is to look after it.
    if (!directory.files.is_found() && ::stat(directory.files.path().c_str(), &status) == 0)
      directory.uid = status.st_uid;
    errors_.Add(SegmentError::kDirectoryUnreadable, directory.uid, directory.files.path(),
                std::strerror(error));
  }
  if (!directory.is_unreadable && directory.private_prefix.empty()) ForgetUnlisted(directory);
}

void SegmentTable::OnFound(Directory& directory, int descriptor, const std::string& name,
                           const struct stat& status, int64_t& effort, const Moment& now) {
  const FileKey key = KeyOf(status);
  const DirectoryEntry place{.directory = &directory, .name = name, .listing = directory.listings};
  if (const auto followed = segments_.find(key); followed != segments_.end()) {
    followed->second.place = place;
    return;
  }
  if (directory.files.owner() && status.st_uid != *directory.files.owner())
    return;  // a link to another's file
  const auto aside = set_aside_.find(key);
  const bool is_known = aside != set_aside_.end();
  const bool has_changed = is_known && aside->second.stamp != FileStamp(status);
  const std::optional<SegmentError> error = is_known ? aside->second.error : std::nullopt;
  if (is_known) aside->second.place = place;
  if (is_known && !has_changed && error == SegmentError::kUnlinkFailed) {
    effort -= kNamesPerOpen;
    directory.files.Unlink(name, key);
  } else if (!is_known || has_changed || error == SegmentError::kOpenFailed) {
    if (!MayOpen(directory, status.st_uid)) return Refuse(directory, name, status.st_uid);
    effort -= kNamesPerOpen;
    Open(directory, descriptor, name, status, now);
  }
}

// So many files of one user are opened in one listing: fewer, the more of his are known already,
// but always some, so that who has left junk behind can still start a job.
bool SegmentTable::MayOpen(Directory& directory, uint64_t uid) const {
  const auto [left, is_first] = directory.listing->opens_left.try_emplace(uid, 0);
  if (is_first) {
    const size_t known = std::min(NumberOf(followed_of_, uid) + NumberOf(set_aside_of_, uid),
                                  kMaxOpensPerUser - kMinOpensPerUser);
    left->second = kMaxOpensPerUser - known;
  }
  if (left->second == 0) return false;
  --left->second;
  return true;
}

void SegmentTable::Open(Directory& directory, int descriptor, const std::string& name,
                        const struct stat& status, const Moment& now) {
  SegmentError error = SegmentError::kNotARegularFile;
  std::string detail = "no regular file";
  std::optional<SegmentFile> file;
  if (S_ISREG(status.st_mode)) file = SegmentFile::Open(descriptor, name, &error, &detail);
  SetAside aside{.place = {.directory = &directory, .name = name, .listing = directory.listings},
                 .uid = status.st_uid,
                 .stamp = FileStamp(status),
                 .error = error,
                 .since_realtime_ns = {}};
  if (!file) {
    // Its writer has not locked it yet, and lets nobody else read it until then.
    const bool is_new = error == SegmentError::kOpenFailed && status.st_size == 0 &&
                        (status.st_mode & S_IROTH) == 0;
    if (is_new) {
      aside.error.reset();
      aside.since_realtime_ns = aside.stamp.modified_realtime_ns;
      aside.since_monotonic_ns = now.monotonic_ns;
    }
    struct stat status_after {};
    if (MountGuard(descriptor).LookAt(name.c_str(), status_after) == MountGuard::Sight::kGone)
      return;  // just unlinked
    return PutAside(KeyOf(status), std::move(aside), detail);
  }
  // If the name has changed hands since, the file that is open counts.
  const struct stat opened = file->Status();
  const FileKey key = KeyOf(opened);
  if (segments_.contains(key)) return;
  aside.uid = opened.st_uid;
  aside.stamp = FileStamp(opened);
  // The lock first: what holds one and has nothing published yet is starting.
  const bool is_alive = file->FindWriter().is_alive;
  const Content content = ContentOf(*file);
  if (content == Content::kForeign || (content == Content::kNothing && !is_alive)) {
    aside.error =
        content == Content::kForeign ? std::optional(SegmentError::kBadMagic) : std::nullopt;
    if (!is_alive) aside.since_realtime_ns = aside.stamp.modified_realtime_ns;
    aside.since_monotonic_ns = now.monotonic_ns;
    return PutAside(key, std::move(aside), "not a segment of nccl-exporter");
  }
  if (!MakeRoom(opened.st_uid, is_alive)) return Refuse(directory, name, opened.st_uid);
  Follow(key, {.place = std::move(aside.place),
               .uid = opened.st_uid,
               .segment = Segment(std::move(*file), is_alive)});
}

// A segment that is served is served to its end, also without a name: a user may have tidied up.
void SegmentTable::ForgetUnlisted(const Directory& directory) {
  const auto is_listed = [&](const DirectoryEntry& place) {
    return place.directory != &directory || place.listing == directory.listings;
  };
  for (auto it = set_aside_.begin(); it != set_aside_.end();) {
    it = is_listed(it->second.place) ? std::next(it) : TakeUp(it);
  }
  for (auto it = segments_.begin(); it != segments_.end();) {
    const bool is_kept = is_listed(it->second.place) || it->second.segment.IsServed();
    it = is_kept ? std::next(it) : Unfollow(it);
  }
}

}  // namespace nccl_exporter::collector
