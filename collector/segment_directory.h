// SPDX-License-Identifier: Apache-2.0
// One directory of segments: lists the names that may be segments, and unlinks.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/segment_file.h"

namespace nccl_exporter {

class SegmentDirectory {
 public:
  enum class Listing { kComplete, kMissing, kUnreadable };

  // `owner`: of a directory that one user's jobs made for themselves. It must be no link and belong to the owner; else
  // it is as good as missing. The owner could lead us elsewhere by a link, and let us unlink there.
  explicit SegmentDirectory(std::string path, std::optional<uint64_t> owner = std::nullopt)
      : path_(std::move(path)), owner_(owner) {}

  const std::string& path() const { return path_; }
  const std::optional<uint64_t>& owner() const { return owner_; }

  // Calls `visit(directory, name, status)` for each name that ends as a segment's does, whatever is behind the name.
  // `directory` is a descriptor, open during the call. A directory that is not there (yet) is no error; after another
  // failure errno says what it is. Adds the number of names that were looked at, of any kind, to `names`.
  using Visit = std::function<void(int directory, const std::string& name, const struct stat& status)>;
  Listing List(size_t& names, const Visit& visit) const;

  // Unlinks `name` if it is still the regular file `key`. False if that failed, and errno says why; it is well if
  // somebody else was faster.
  bool Unlink(const std::string& name, const FileKey& key) const;

 private:
  FileDescriptor Open() const;

  std::string path_;
  std::optional<uint64_t> owner_;
};

// The private directories of users that `pattern` stands for: a path that ends with "-*", where the users' numbers
// stand in the place of "*". Only those that belong to the user of their number, are no links, and that nobody else
// writes to; at most `limit`. Adds the number of names that were looked at to `names`.
std::vector<SegmentDirectory> PrivateDirectories(const std::string& pattern, size_t limit, size_t& names);

// Whether a path of --segment.dir is such a pattern.
inline bool IsPrivatePattern(const std::string& path) { return path.ends_with("-*"); }

}  // namespace nccl_exporter
