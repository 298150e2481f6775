// SPDX-License-Identifier: Apache-2.0
// One directory of segments: lists the names that may be segments, and unlinks.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <utility>

#include "collector/segment_file.h"

namespace nccl_exporter {

class SegmentDirectory {
 public:
  enum class Listing { kComplete, kMissing, kUnreadable };

  explicit SegmentDirectory(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Calls `visit(directory, name, status)` for each name that ends as a segment's does, whatever is behind the name.
  // `directory` is a descriptor, open during the call. A directory that is not there (yet) is no error.
  using Visit = std::function<void(int directory, const std::string& name, const struct stat& status)>;
  Listing List(const Visit& visit) const;

  // Unlinks `name` if it is still the regular file `key`. False if that failed; it is well if somebody else was faster.
  bool Unlink(const std::string& name, const FileKey& key) const;

 private:
  std::string path_;
};

}  // namespace nccl_exporter
