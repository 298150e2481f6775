// SPDX-License-Identifier: Apache-2.0
// Discovery and following of segments; segment_removal.cc has their end.
#include "collector/segment_table.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

#include "proto/shm_layout.h"

namespace nccl_exporter {
namespace {

// Descriptors that must be left for connections, listening and reading: twice what the web server may hold.
constexpr size_t kReservedDescriptors = 256;

// Where the limit of descriptors is low, few segments must not keep the rest of the daemon from opening files.
size_t SegmentLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMaxSegments;
  const size_t allowed =
      limit.rlim_cur > 2 * kReservedDescriptors ? limit.rlim_cur - kReservedDescriptors : limit.rlim_cur / 2;
  return std::min(kMaxSegments, allowed);
}

int64_t Nanoseconds(std::chrono::nanoseconds time) { return time.count(); }

// For how long a directory of so many names is left alone after it was read.
int64_t RestAfter(size_t names) {
  return names > kNamesAtEase ? static_cast<int64_t>(names) * Nanoseconds(kRestPerName) : 0;
}

// What a file is by its first bytes.
enum class Content : uint8_t { kPublished, kNothing, kForeign };

Content ContentOf(const SegmentFile& file) {
  static_assert(offsetof(layout::SegmentHeader, version) == 0 && offsetof(layout::SegmentHeader, magic) == 8);
  std::array<uint64_t, 2> words{};  // version and magic
  file.Read(0, std::as_writable_bytes(std::span(words)));
  if (words[0] == 0) return Content::kNothing;
  return words[1] == layout::kMagic ? Content::kPublished : Content::kForeign;
}

}  // namespace

SegmentTable::SegmentTable(std::vector<std::string> directories, std::chrono::nanoseconds retention)
    : retention_(retention), segment_limit_(SegmentLimit()) {
  for (std::string& path : directories) {
    const auto is_same = [&](const Directory& directory) { return directory.files.path() == path; };
    if (IsPrivatePattern(path)) {
      private_patterns_.push_back(std::move(path));
    } else if (std::ranges::none_of(directories_, is_same)) {
      directories_.push_back({.files = SegmentDirectory(std::move(path))});
    }
  }
}

void SegmentTable::Refresh(const Moment& now) {
  errors_.SetNow(now.realtime_ns);
  FindPrivateDirectories(now);
  ListWhereNeeded(now);
  Observe(now);
  RemoveOver(now);
  RemoveSetAside(now);
}

void SegmentTable::FindPrivateDirectories(const Moment& now) {
  const int64_t rest_ns = std::max(Nanoseconds(kPrivateDirectoriesInterval), RestAfter(private_names_));
  const bool is_due = !private_sought_monotonic_ns_ || now.monotonic_ns - *private_sought_monotonic_ns_ >= rest_ns;
  if (private_patterns_.empty() || !is_due) return;
  private_sought_monotonic_ns_ = now.monotonic_ns;
  private_names_ = 0;
  ForgetPrivateDirectories();
  const auto refused_before = std::exchange(private_refused_, {});
  for (const std::string& pattern : private_patterns_) {
    // One more than there is room for, to name it.
    for (SegmentDirectory& found : PrivateDirectories(pattern, kMaxPrivateDirectories + 1, private_names_)) {
      const auto is_same = [&](const Directory& directory) { return directory.files.path() == found.path(); };
      if (std::ranges::any_of(directories_, is_same)) continue;
      if (directories_.size() < kMaxPrivateDirectories) {
        directories_.push_back({.files = std::move(found)});
        continue;
      }
      private_refused_.emplace(found.path(), *found.owner());
      if (refused_before.contains(found.path())) continue;
      errors_.Add(SegmentError::kTooManySegments, *found.owner(), found.path(),
                  "no room beside " + std::to_string(directories_.size()) + " directories");
    }
  }
}

// Those that are gone, and that no file is known of any more.
void SegmentTable::ForgetPrivateDirectories() {
  const auto is_of = [](const Directory& directory) {
    return [&](const auto& entry) { return entry.second.place.directory == &directory; };
  };
  std::erase_if(directories_, [&](const Directory& directory) {
    return directory.files.owner() && directory.is_missing && std::ranges::none_of(segments_, is_of(directory)) &&
           std::ranges::none_of(set_aside_, is_of(directory));
  });
}

void SegmentTable::ListWhereNeeded(const Moment& now) {
  const std::set<std::string> changed = watch_.TakeChanges();
  for (Directory& directory : directories_) {
    if (directory.listed_monotonic_ns) {
      const int64_t age_ns = now.monotonic_ns - *directory.listed_monotonic_ns;
      const bool has_changed = !directory.is_watched || changed.contains(directory.files.path());
      const bool must_rest = age_ns < RestAfter(directory.names);
      if (must_rest || (!has_changed && age_ns < Nanoseconds(kRescanInterval))) {
        directory.is_watched = directory.is_watched && !(must_rest && has_changed);  // not forgotten
        continue;
      }
    }
    // Before listing, so that nothing slips through between the two.
    directory.is_watched = watch_.Watch(directory.files.path());
    directory.listed_monotonic_ns = now.monotonic_ns;
    List(directory, now);
  }
}

void SegmentTable::List(Directory& directory, const Moment& now) {
  const auto unlist = [&](auto& files) {
    for (auto& [key, file] : files) {
      if (file.place.directory == &directory) file.place.is_listed = false;
    }
  };
  unlist(segments_);
  unlist(set_aside_);
  directory.refused_before = std::exchange(directory.refused, {});
  directory.opened.clear();
  directory.names = 0;
  const auto visit = [&](int descriptor, const std::string& name, const struct stat& status) {
    Meet(directory, descriptor, name, status, now);
  };
  const auto listing = directory.files.List(directory.names, visit);
  const int error = errno;
  directory.is_missing = listing == SegmentDirectory::Listing::kMissing;
  const bool was_unreadable = std::exchange(directory.is_unreadable, listing == SegmentDirectory::Listing::kUnreadable);
  if (directory.is_unreadable && !was_unreadable) {
    struct stat status {};
    ::stat(directory.files.path().c_str(), &status);  // where even that fails, root is to look after it
    directory.uid = status.st_uid;
    errors_.Add(SegmentError::kDirectoryUnreadable, status.st_uid, directory.files.path(), std::strerror(error));
  }
  if (!directory.is_unreadable) ForgetUnlisted();
}

void SegmentTable::Meet(Directory& directory, int descriptor, const std::string& name, const struct stat& status,
                        const Moment& now) {
  const FileKey key = KeyOf(status);
  if (const auto followed = segments_.find(key); followed != segments_.end()) {
    followed->second.place = {&directory, name};
    return;
  }
  if (directory.files.owner() && status.st_uid != *directory.files.owner()) return;  // a link to another's file
  const auto aside = set_aside_.find(key);
  if (aside == set_aside_.end()) return Open(directory, descriptor, name, status, now);
  aside->second.place = {&directory, name};
  const bool has_changed = aside->second.stamp != FileStamp(status);
  if (!has_changed && aside->second.error == SegmentError::kUnlinkFailed) {
    directory.files.Unlink(name, key);
  } else if (has_changed || aside->second.error == SegmentError::kOpenFailed) {
    Open(directory, descriptor, name, status, now);
  }
}

void SegmentTable::Open(Directory& directory, int descriptor, const std::string& name, const struct stat& status,
                        const Moment& now) {
  if (++directory.opened[status.st_uid] > kMaxOpensPerUser) return Refuse(directory, name, status.st_uid);
  SegmentError error = SegmentError::kNotARegularFile;
  std::string detail = "no regular file";
  std::optional<SegmentFile> file;
  if (S_ISREG(status.st_mode)) file = SegmentFile::Open(descriptor, name, &error, &detail);
  SetAside aside{.place = {&directory, name},
                 .uid = status.st_uid,
                 .stamp = FileStamp(status),
                 .error = error,
                 .since_realtime_ns = {}};
  if (!file) {
    // Its writer has not locked it yet, and lets nobody else read it until then.
    const bool is_new = error == SegmentError::kOpenFailed && status.st_size == 0 && (status.st_mode & S_IROTH) == 0;
    if (is_new) {
      aside.error.reset();
      aside.since_realtime_ns = aside.stamp.modified_realtime_ns;
      aside.since_monotonic_ns = now.monotonic_ns;
    }
    struct stat status_after {};
    if (::fstatat(descriptor, name.c_str(), &status_after, AT_SYMLINK_NOFOLLOW) != 0) return;  // just unlinked
    return PutAside(KeyOf(status), std::move(aside), detail);
  }
  const struct stat opened = file->Status();  // if the name has changed hands since, the file that is open counts
  const FileKey key = KeyOf(opened);
  if (segments_.contains(key)) return;
  aside.uid = opened.st_uid;
  aside.stamp = FileStamp(opened);
  // The lock first: what holds one and has nothing published yet is starting.
  const bool is_alive = file->HasWriter();
  const Content content = ContentOf(*file);
  if (content == Content::kForeign || (content == Content::kNothing && !is_alive)) {
    aside.error = content == Content::kForeign ? std::optional(SegmentError::kBadMagic) : std::nullopt;
    if (!is_alive) aside.since_realtime_ns = aside.stamp.modified_realtime_ns;
    aside.since_monotonic_ns = now.monotonic_ns;
    return PutAside(key, std::move(aside), "not a segment of nccl-exporter");
  }
  if (!MakeRoom(opened.st_uid, is_alive)) return Refuse(directory, name, opened.st_uid);
  Follow(key, {.place = std::move(aside.place), .uid = opened.st_uid, .segment = Segment(std::move(*file), is_alive)});
}

void SegmentTable::Follow(const FileKey& key, Followed followed) {
  if (const auto aside = set_aside_.find(key); aside != set_aside_.end()) TakeUp(aside);
  ++followed_of_[followed.uid];
  segments_.insert_or_assign(key, std::move(followed));
}

SegmentTable::Segments::iterator SegmentTable::Unfollow(Segments::iterator segment) {
  const auto user = followed_of_.find(segment->second.uid);
  if (--user->second == 0) followed_of_.erase(user);
  return segments_.erase(segment);
}

// Whether there is room for one more segment of the user.
bool SegmentTable::MakeRoom(uint64_t uid, bool is_alive) {
  const auto own = followed_of_.find(uid);
  const size_t count = own == followed_of_.end() ? 0 : own->second;
  if (count < kMaxSegmentsPerUser) {
    if (segments_.size() < segment_limit_) return true;
    const auto most = std::ranges::max_element(followed_of_, {}, [](const auto& user) { return user.second; });
    if (most != followed_of_.end() && most->second > count + 1 && GiveWay(most->first, true)) return true;
  }
  return is_alive && GiveWay(uid, false);
}

// Lets go of one segment of the user: of the dead, or else, if that may be, of the living.
bool SegmentTable::GiveWay(uint64_t uid, bool also_the_living) {
  auto chosen = segments_.end();
  for (auto it = segments_.begin(); it != segments_.end(); ++it) {
    if (it->second.uid != uid || (it->second.segment.is_alive() && !also_the_living)) continue;
    chosen = it;
    if (!it->second.segment.is_alive()) break;
  }
  if (chosen == segments_.end()) return false;
  Unfollow(chosen);
  return true;
}

void SegmentTable::Refuse(Directory& directory, const std::string& name, uint64_t uid) {
  if (!directory.refused.insert(uid).second || directory.refused_before.contains(uid)) return;
  const auto number = [&](const std::map<uint64_t, size_t>& of) { return of.contains(uid) ? of.at(uid) : 0; };
  errors_.Add(SegmentError::kTooManySegments, uid, directory.files.path() + '/' + name,
              "no room beside " + std::to_string(number(followed_of_)) + " segments and " +
                  std::to_string(number(set_aside_of_)) + " other files of the user");
}

// In a private directory only its user may unlink.
bool SegmentTable::IsExpected(const SetAside& aside) {
  return aside.error == SegmentError::kUnlinkFailed && aside.place.directory->files.owner();
}

void SegmentTable::PutAside(const FileKey& key, SetAside aside, const std::string& detail) {
  const auto known = set_aside_.find(key);
  const auto user = set_aside_of_.find(aside.uid);
  const bool has_room =
      set_aside_.size() < kMaxSetAside && (user == set_aside_of_.end() || user->second < kMaxSetAsidePerUser);
  if (known == set_aside_.end() && !has_room) return Refuse(*aside.place.directory, aside.place.name, aside.uid);
  const bool is_same =
      known != set_aside_.end() && known->second.stamp == aside.stamp && known->second.error == aside.error;
  if (!is_same && aside.error && !IsExpected(aside)) {
    errors_.Add(*aside.error, aside.uid, aside.place.directory->files.path() + '/' + aside.place.name, detail);
  }
  if (known != set_aside_.end()) TakeUp(known);
  ++set_aside_of_[aside.uid];
  set_aside_.insert_or_assign(key, std::move(aside));
}

std::map<FileKey, SegmentTable::SetAside>::iterator SegmentTable::TakeUp(std::map<FileKey, SetAside>::iterator aside) {
  const auto user = set_aside_of_.find(aside->second.uid);
  if (--user->second == 0) set_aside_of_.erase(user);
  return set_aside_.erase(aside);
}

// What is served is served to its end, also without a name: somebody may have tidied up.
void SegmentTable::ForgetUnlisted() {
  for (auto it = set_aside_.begin(); it != set_aside_.end();) {
    it = it->second.place.is_listed ? std::next(it) : TakeUp(it);
  }
  for (auto it = segments_.begin(); it != segments_.end();) {
    const bool is_kept = it->second.place.is_listed || it->second.segment.IsServed();
    it = is_kept ? std::next(it) : Unfollow(it);
  }
}

// Users in the order of what they wanted last: each may take an equal part of what those before have left, so that no
// user's communicators take the room of another's. What was copied is charged whatever came of it: so room bounds the
// cost of reading as well.
void SegmentTable::ShareCommunicators(const Moment& now, const IsFirst& is_first, const Take& take) {
  struct User {
    uint64_t wanted = 0;
    std::vector<Segments::value_type*> segments;
  };
  std::map<uint64_t, User> users;
  for (auto& entry : segments_) {
    User& user = users[entry.second.uid];
    user.wanted += entry.second.segment.CommunicatorsWanted();
    user.segments.push_back(&entry);
  }
  std::vector<User*> order;
  for (auto& [uid, user] : users) order.push_back(&user);
  std::ranges::stable_sort(order, {}, &User::wanted);
  uint64_t left = kMaxCommunicators;
  for (size_t i = 0; i < order.size(); ++i) {
    uint64_t share = left / (order.size() - i);
    std::ranges::stable_partition(order[i]->segments,
                                  [&](const auto* entry) { return is_first(entry->second.segment); });
    for (auto* entry : order[i]->segments) {
      const ReadTerms terms{.now = now, .retention = retention_, .communicator_limit = share};
      const uint64_t taken = std::min(take(entry->first, entry->second, terms), share);
      share -= taken;
      left -= taken;
    }
  }
}

void SegmentTable::Observe(const Moment& now) {
  for (auto& [key, followed] : segments_) followed.segment.Observe();
  ShareCommunicators(
      now, [](const Segment& segment) { return segment.CommunicatorsKept() != 0; },
      [&](const FileKey&, Followed& followed, const ReadTerms& terms) {
        return followed.segment.KeepLastState(terms, ErrorsOf(followed));
      });
}

void SegmentTable::ForEach(const Visit& visit) const {
  for (const auto& [key, followed] : segments_) visit(key, followed.segment.file(), followed.segment.is_alive());
}

SegmentErrorCounts::Present SegmentTable::PresentFaults() const {
  SegmentErrorCounts::Present present;
  for (const Directory& directory : directories_) {
    if (directory.is_unreadable) ++present[{directory.uid, SegmentError::kDirectoryUnreadable}];
    for (const uint64_t uid : directory.refused) present[{uid, SegmentError::kTooManySegments}] = 1;
  }
  for (const auto& [path, uid] : private_refused_) present[{uid, SegmentError::kTooManySegments}] = 1;
  for (const auto& [key, aside] : set_aside_) {
    if (aside.error && !IsExpected(aside)) ++present[{aside.uid, *aside.error}];
  }
  for (const auto& [key, followed] : segments_) {
    if (const auto fault = followed.segment.Fault()) ++present[{followed.uid, *fault}];
  }
  return present;
}

NodeSnapshot SegmentTable::Read(const Moment& now) {
  NodeSnapshot snapshot;
  snapshot.taken_realtime_ns = now.realtime_ns;
  ShareCommunicators(now, &Segment::is_alive, [&](const FileKey&, Followed& followed, const ReadTerms& terms) {
    return followed.segment.AddTo(snapshot, followed.place.name, terms, ErrorsOf(followed));
  });
  for (const auto& [key, file] : set_aside_) {
    if (!file.error) ++snapshot.segments.starting;
    if (file.error && file.error != SegmentError::kUnlinkFailed) ++snapshot.segments.unusable;
  }
  std::ranges::sort(snapshot.processes, {}, [](const ProcessSnapshot& process) {
    return std::tuple<int64_t, const std::string&, FileKey>(process.start_realtime_ns, process.segment, process.file);
  });
  snapshot.segment_errors = errors_.values();
  snapshot.segment_troubles = errors_.Troubles(PresentFaults());
  return snapshot;
}

}  // namespace nccl_exporter
