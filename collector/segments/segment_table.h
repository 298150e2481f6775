// SPDX-License-Identifier: Apache-2.0
// All segments of the node: found in the directories, followed by their inode, and removed when
// their time is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "collector/reader/moment.h"
#include "collector/segments/directory_watch.h"
#include "collector/segments/process_identities.h"
#include "collector/segments/segment.h"
#include "collector/segments/segment_directory.h"
#include "collector/segments/segment_errors.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// Files of one user that are remembered without being open: no segments, not ready, or over and not
// to be unlinked (a directory mounted read-only). Some hundred bytes each; further ones of the user
// are opened again at each listing.
inline constexpr size_t kMaxSetAsidePerUser = 4096;

// Files of all users together that are remembered without being open.
inline constexpr size_t kMaxSetAside = 65536;

// A directory that is watched is listed when something changed in it, and from time to time all the
// same: inotify does not see everything. Where it is not watched (it is missing, or inotify
// unavailable), each refresh lists it.
inline constexpr std::chrono::seconds kRescanInterval{10};

// A listing goes on in parts, so that nobody waits for a whole one: a directory may have any number
// of names, and the collector's lock is held meanwhile. A part is a number of names, of whatever
// kind, at 1 to 4 us each; a file that has to be opened or unlinked costs as much as kNamesPerOpen.
// So a part takes 2 to 4 ms at most.
inline constexpr int64_t kNamesPerPart = 1024;
inline constexpr int64_t kNamesPerOpen = 16;

// Where a user fills a directory, the next listing of it begins 50 us after the end of the last for
// each of its names, so that listing takes a few per cent of a core; jobs do not have so many.
inline constexpr int64_t kNamesAtEase = 4096;
inline constexpr std::chrono::microseconds kRestPerName{50};

// Unknown files of one user that a listing opens: as many as can be remembered beside the known
// ones; further ones are refused unseen. A few are opened all the same: a file whose lock is held
// comes before others of his.
inline constexpr size_t kMaxOpensPerUser = kMaxSegmentsPerUser + kMaxSetAsidePerUser;
inline constexpr size_t kMinOpensPerUser = 256;

// Files of one user that one Look() unlinks: each takes about 40 us, and their owner can make any
// number of them look old. The next Look() comes within a second.
inline constexpr size_t kMaxRemovalsPerUser = 64;

// Interval in which private directories of users are looked for, and number of them that are
// watched: /dev/shm is a busy place, where each shared memory of a job would wake us.
inline constexpr std::chrono::seconds kPrivateDirectoriesInterval{1};
inline constexpr size_t kMaxPrivateDirectories = 256;

// Subdirectories of the shared directories, of which each pod, container or job may have one: so
// many of root's (kubelet, a prolog) and of the daemon's user, and as many of others, of whom each
// has his part. Each takes a watch of inotify; systems allow 8,192 and more. Empty ones give way.
inline constexpr size_t kMaxSubdirectories = 1024;
inline constexpr size_t kMaxSubdirectoriesPerUser = 128;

// Names in an empty directory: . and ..
inline constexpr int64_t kNamesOfEmpty = 2;

// Names of a subdirectory that one listing reads: a job has few processes on a node.
inline constexpr int64_t kNamesPerSubdirectory = 4096;

// A subdirectory that is empty and has not changed for so long is removed: its pod or job has
// ended. One that runs may be without a process that uses NCCL for hours.
inline constexpr std::chrono::hours kEmptyDirectoryAge{24};

// A dead process stays known beyond the retention time for as long as a living rank of one of its
// communicators waits: it has had an operation in flight for kWaitsAfter. It is looked for every
// kWaitersInterval, which costs what a scrape of the user's segments costs. With a short retention
// both are shorter, half and a quarter of it: who waits since the death must be found before the
// time is over. Nothing is kept for longer than kLongestWait: a job that hangs for a day is watched
// by nobody.
inline constexpr std::chrono::seconds kWaitsAfter{10};
inline constexpr std::chrono::seconds kWaitersInterval{5};
inline constexpr std::chrono::hours kLongestWait{24};

// Room is shared by user, the owner of the file as the kernel reports it. A user may follow
// kMaxSegmentsPerUser segments; where the table is full, the user with the most gives way to one
// with less, so that each gets an equal share or what he needs. Of one user's segments, those whose
// lock is held come first. Communicators of a snapshot are shared in the same way; of one user's,
// by communicator and not by file (room_shares.h).
//
// Not thread-safe: its owner locks.
class SegmentTable {
 public:
  // `directories`: paths, or patterns of private directories: paths that end with "-*", with a
  // user's number in place of "*".
  SegmentTable(std::vector<std::string> directories, std::chrono::nanoseconds retention,
               bool splits_durations = false);

  // Notices what has changed in the directories, and lists one part of it. DiscoverMore() goes on
  // with the next part of what was noticed, for as long as IsDiscovering().
  void Discover(const Moment& now);
  void DiscoverMore(const Moment& now);
  bool IsDiscovering() const;

  // Whether every directory was listed at least once, of those that were there at the beginning.
  bool HasListedAll() const { return has_listed_all_; }

  // Files that were there at this moment, of CLOCK_MONOTONIC, are known. Later ones need not be,
  // where a listing is under way or has to wait.
  int64_t KnownUntil(const Moment& now) const;

  // Notices writers that have gone, unlinks what is over, and looks at what is left: of each user's
  // segments at kMaxSlotsPerUser slots, which the segments share.
  SegmentLooks Look(const Moment& now);

  // Reads the segments. `looks` are of the same moment; a segment that was discovered since is left
  // to the next snapshot.
  NodeSnapshot Read(SegmentLooks looks, const Moment& now);

  // Readable when Discover() has something to look at; -1: not known.
  int wakeup_descriptor() const { return watch_.descriptor(); }

 private:
  // A listing that is due or under way.
  struct Listing {
    DirectoryNames names = {};
    int64_t begun_monotonic_ns = 0;
    std::set<uint64_t> refused = {};             // users whose files found no room
    std::map<uint64_t, size_t> opens_left = {};  // by user
  };
  struct Directory {
    SegmentDirectory files;
    // Not empty: users have private directories in this one, whose names begin so; it has no
    // segments.
    std::string private_prefix = {};
    bool is_watched = false;
    bool has_changed = false;  // since the latest listing began
    bool is_missing = false;
    bool is_unreadable = false;
    bool is_subdirectory = false;
    bool is_initial = true;  // was there when the daemon began
    uint64_t uid = 0;        // its owner, where it is unreadable or was found
    // Users whose files found no room, at the last listing or since.
    std::set<uint64_t> refused = {};
    uint64_t listings = 0;  // that have begun
    std::optional<Listing> listing = std::nullopt;
    // Data of the last complete listing.
    int64_t names_listed = 0;
    std::optional<int64_t> begun_monotonic_ns = std::nullopt;
    int64_t ended_monotonic_ns = 0;
  };
  // Where a file was last seen, and at which listing of the directory.
  struct DirectoryEntry {
    Directory* directory;
    std::string name;
    uint64_t listing;
  };
  struct Followed {
    DirectoryEntry place;
    uint64_t uid;
    Segment segment;
  };
  // A file that is not held open: no segment, nothing published and no process that holds it, or
  // over and not to be unlinked. Looked at again when its stamp has changed.
  struct SetAside {
    DirectoryEntry place;
    uint64_t uid;
    FileStamp stamp;
    std::optional<SegmentError> error;         // none: not ready
    std::optional<int64_t> since_realtime_ns;  // of a file that will be unlinked: its last change
    int64_t since_monotonic_ns = 0;
  };
  using Segments = std::map<FileKey, Followed>;

  bool IsUnused(const Directory& directory) const;
  std::list<Directory>::iterator Forget(std::list<Directory>::iterator directory);
  void ForgetFound();
  bool ForgetAnEmptyOne(uint64_t uid);
  // Names that the subdirectories of each user had at their last listings.
  std::map<uint64_t, int64_t> NamesOfSubdirectories() const;
  bool MustList(const Directory& directory, int64_t names, const Moment& now) const;
  void OnSubdirectory(Directory& directory, const std::string& name, const struct stat& status,
                      int64_t& effort);
  void OnPrivateDirectory(Directory& directory, const std::string& name, const struct stat& status);
  bool HasRoomForSubdirectory(uint64_t uid) const;
  static void PrepareSubdirectory(int descriptor);
  static void RemoveIfOld(const Directory& directory, const Moment& now);
  void List(Directory& directory, int64_t& effort, const Moment& now);
  void EndListing(Directory& directory, SegmentDirectory::Listing result, int error,
                  const Moment& now);
  void OnFound(Directory& directory, int descriptor, const std::string& name,
               const struct stat& status, int64_t& effort, const Moment& now);
  bool MayOpen(Directory& directory, uint64_t uid) const;
  void Open(Directory& directory, int descriptor, const std::string& name,
            const struct stat& status, const Moment& now);
  void Follow(const FileKey& key, Followed followed);
  Segments::iterator Unfollow(Segments::iterator segment);
  bool MakeRoom(uint64_t uid, bool is_alive);
  bool GiveWay(uint64_t uid, bool also_the_living);
  void Refuse(Directory& directory, const std::string& name, uint64_t uid);
  static bool IsExpected(const SetAside& aside);
  void PutAside(const FileKey& key, SetAside aside, const std::string& detail);
  std::map<FileKey, SetAside>::iterator TakeUp(std::map<FileKey, SetAside>::iterator aside);
  void ForgetUnlisted(const Directory& directory);
  void Observe(const Moment& now);
  using Numbers = std::map<uint64_t, size_t>;  // by user; those with none have no entry
  static size_t NumberOf(const Numbers& numbers, uint64_t uid) {
    const auto found = numbers.find(uid);
    return found == numbers.end() ? 0 : found->second;
  }
  static void TakeOne(Numbers& numbers, uint64_t uid) {
    if (--numbers[uid] == 0) numbers.erase(uid);
  }
  bool MayRemove(uint64_t uid) { return ++removals_[uid] <= kMaxRemovalsPerUser; }
  SegmentLooks LookAtFollowed() const;
  void RemoveOver(const Moment& now);
  void RemoveSetAside(const Moment& now);
  void FindWaiting(const Moment& now);
  bool IsWaitedFor(const Followed& followed, const Moment& now) const;
  FileErrors ErrorsOf(const Followed& followed) {
    return {.all = errors_,
            .directory = followed.place.directory->files.path(),
            .name = followed.place.name,
            .uid = followed.uid};
  }
  SegmentErrorCounts::Present PresentFaults() const;
  using Take =
      std::function<uint64_t(const FileKey& key, Followed& followed, const ReadTerms& terms)>;
  using Wanted = std::function<RoomWanted(const FileKey& key, const Followed& followed)>;
  void ShareCommunicators(const Moment& now, const Wanted& wanted, const Take& take);

  const std::chrono::nanoseconds retention_;
  const bool splits_durations_;
  const std::chrono::nanoseconds waits_after_;
  const std::chrono::nanoseconds waiters_interval_;
  const size_t segment_limit_;
  // Places point into it; the one that is to be listed next comes first.
  std::list<Directory> directories_;
  std::set<std::string> known_;  // their paths, but for patterns
  Numbers subdirectories_of_;    // by owner
  bool has_listed_all_ = false;
  DirectoryWatch watch_;
  Segments segments_;
  ProvenIdentities proven_;  // of the segments
  std::map<FileKey, SetAside> set_aside_;
  Numbers followed_of_;   // by user
  Numbers set_aside_of_;  // by user
  Numbers removals_;      // by user, in the latest Look()
  // Communicators in which a living rank waits; looked for while the time of a dead process is
  // over.
  std::set<CommunicatorKey> waiting_;
  std::optional<int64_t> waiting_monotonic_ns_;
  SegmentErrorCounts errors_;
};

}  // namespace nccl_exporter::collector
