// SPDX-License-Identifier: Apache-2.0
// All segments of the node: found in the directories, followed by their inode, and removed when their time is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/directory_watch.h"
#include "collector/moment.h"
#include "collector/node_snapshot.h"
#include "collector/segment.h"
#include "collector/segment_directory.h"
#include "collector/segment_errors.h"

namespace nccl_exporter {

// Files remembered in one directory that are no segments, or that are over but cannot be unlinked (a directory mounted
// read-only): some hundred bytes each. They must not take the place of segments.
inline constexpr size_t kMaxSetAside = 16384;

// A directory that is watched is listed when something changed in it, and from time to time all the same: inotify does
// not see everything. Where it is not watched (it is missing, or inotify unavailable), each refresh lists it.
inline constexpr std::chrono::seconds kRescanInterval{10};

// Not thread-safe: its owner locks.
class SegmentTable {
 public:
  SegmentTable(std::vector<std::string> directories, std::chrono::nanoseconds retention);

  // Finds new segments, notices writers that have gone, unlinks what is over.
  void Refresh(const Moment& now);

  // Refreshes and reads. `complete` is called for each process with what is not in its segment's counts.
  using Complete = std::function<void(const FileKey& key, ProcessSnapshot& process)>;
  NodeSnapshot Snapshot(const Moment& now, const Complete& complete = {});

  // The segments that are followed, as of the last Refresh(); their files stay until the next one.
  using Visit = std::function<void(const FileKey& key, const SegmentFile& file, bool is_alive)>;
  void ForEach(const Visit& visit) const;

  // Readable when Refresh() has something to look at; -1: cannot tell.
  int wakeup_descriptor() const { return watch_.descriptor(); }

 private:
  struct Directory {
    SegmentDirectory files;
    bool is_watched = false;
    bool is_unreadable = false;
    bool is_full = false;
    int64_t listed_monotonic_ns = 0;
    size_t followed = 0;  // files of this directory in segments_ and set_aside_, counted at each listing
    size_t set_aside = 0;
  };
  // Where a file was last seen. `is_listed` is cleared before each listing of its directory.
  struct Place {
    Directory* directory;
    std::string name;
    bool is_listed = true;
  };
  struct Followed {
    Place place;
    Segment segment;
  };
  // A file that is not held open: no segment, or over but not to be unlinked. Tried again at each listing.
  struct SetAside {
    Place place;
    FileStamp stamp;
    SegmentError error;
  };

  void ListWhereNeeded(const Moment& now);
  void List(Directory& directory);
  void Meet(Directory& directory, int descriptor, const std::string& name, const struct stat& status);
  void Open(Directory& directory, int descriptor, const std::string& name, const struct stat& status);
  void PutAside(const FileKey& key, Place place, const FileStamp& stamp, SegmentError error);
  void ForgetUnlisted();
  void Observe(const Moment& now);
  void RemoveOver(const Moment& now);
  ReadTerms Terms(const Moment& now, uint64_t communicators_taken) const;

  const std::chrono::nanoseconds retention_;
  std::vector<Directory> directories_;  // never resized: places point into it
  DirectoryWatch watch_;
  std::map<FileKey, Followed> segments_;
  std::map<FileKey, SetAside> set_aside_;
  SegmentErrorCounts errors_;
};

}  // namespace nccl_exporter
