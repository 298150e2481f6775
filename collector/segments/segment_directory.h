// SPDX-License-Identifier: Apache-2.0
// One directory of segments: lists the names that may be segments, part by part, and unlinks. What
// is in it on another mount is not touched (mount_guard.h).
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collector/segments/mount_guard.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// The names of one directory, read one after the other. Any time may pass in between: a name that
// stays there comes exactly once.
class DirectoryNames {
 public:
  DirectoryNames() = default;
  explicit DirectoryNames(FileDescriptor directory);

  bool is_open() const { return directory_ != nullptr; }
  int descriptor() const { return ::dirfd(directory_.get()); }
  // Null at the end, and where reading fails: errno is not 0 then.
  const dirent* Next();
  int64_t count() const { return count_; }  // of names so far, with . and ..
  const MountGuard& guard() const { return guard_; }

 private:
  struct Close {
    void operator()(DIR* directory) const { ::closedir(directory); }
  };
  std::unique_ptr<DIR, Close> directory_;
  MountGuard guard_;
  int64_t count_ = 0;
};

class SegmentDirectory {
 public:
  enum class Listing { kPartial, kComplete, kMissing, kUnreadable };

  explicit SegmentDirectory(std::string path) : path_(std::move(path)) {}

  // One that was found in another directory, at `path`. It must be no link and no mount. `owner`:
  // of a directory that one user's jobs made. It must belong to the owner; else it is as good as
  // missing. The owner could lead us elsewhere by a link, and let us unlink there.
  static SegmentDirectory Found(std::string path, std::optional<uint64_t> owner) {
    SegmentDirectory directory(std::move(path));
    directory.is_found_ = true;
    directory.owner_ = owner;
    return directory;
  }

  const std::string& path() const { return path_; }
  bool is_found() const { return is_found_; }
  const std::optional<uint64_t>& owner() const { return owner_; }

  // Not open where the directory cannot be opened: errno says why.
  DirectoryNames OpenNames() const { return DirectoryNames(Open()); }

  // Goes on through `names`, which it opens where they are not open, for as long as `effort` is
  // positive: each name, of any kind, takes 1 of it. Calls `visit(directory, name, status)` for
  // each name that ends as a segment's does, whatever is behind it; of a mount the mode is 0.
  // `directory` is a descriptor, open during the call. Calls `visit_directory` for each directory
  // with another name, if there is such a function. With `prefix` only directories are visited,
  // those whose names begin with it. A directory that is not there (yet) is no error; after another
  // failure errno says what it is.
  using Visit =
      std::function<void(int directory, const std::string& name, const struct stat& status)>;
  Listing List(DirectoryNames& names, int64_t& effort, const Visit& visit,
               const Visit& visit_directory = nullptr, std::string_view prefix = {}) const;

  // The file of this name. On failure `error` and `detail` are set.
  std::optional<SegmentFile> OpenFile(const std::string& name, SegmentError* error,
                                      std::string* detail) const;

  // Whether there is a file of this name with another stamp.
  bool HasChanged(const std::string& name, const FileStamp& stamp) const;

  // Removes the directory itself, if it was found and is empty and the rights suffice.
  void RemoveIfEmpty() const;

  // Unlinks `name` if it is still the regular file `key`. False if that failed, and errno says why;
  // it is well if another process was faster.
  bool Unlink(const std::string& name, const FileKey& key) const;

 private:
  FileDescriptor Open() const;
  FileDescriptor OpenParent() const;
  std::string Name() const { return path_.substr(path_.rfind('/') + 1); }

  std::string path_;
  bool is_found_ = false;
  std::optional<uint64_t> owner_;
};

}  // namespace nccl_exporter::collector
