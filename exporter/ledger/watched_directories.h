// SPDX-License-Identifier: Apache-2.0
// WatchedDirectories, the directories that a program watches, to compare two programs. The same
// path may be another directory in a container, and on another node. For any thread.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

struct WatchedDirectories {
  // Boot of the kernel: it differs between nodes. Empty where /proc does not have it.
  std::string boot_id;
  // Device and inode, sorted: "26:1041". One of private directories is that of their parent, and
  // the pattern: "25:1/nccl-exporter-*". Those that do not exist hold nothing and are left out.
  std::vector<std::string> ids;

  bool operator==(const WatchedDirectories&) const = default;
};

// Empty if there is no directory.
inline std::string DirectoryId(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return "";
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// `paths` as in --segment.dir.
inline WatchedDirectories WatchedDirectoriesOf(const std::vector<std::string>& paths) {
  WatchedDirectories watched;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> watched.boot_id;
  for (const std::string& path : paths) {
    const bool is_pattern = collector::IsPrivatePattern(path);
    const size_t name_at = path.rfind('/') + 1;
    const std::string parent = name_at == 0 ? "." : path.substr(0, name_at);
    const std::string id = DirectoryId(is_pattern ? parent : path);
    if (!id.empty()) watched.ids.push_back(is_pattern ? id + '/' + path.substr(name_at) : id);
  }
  std::ranges::sort(watched.ids);
  watched.ids.erase(std::unique(watched.ids.begin(), watched.ids.end()), watched.ids.end());
  return watched;
}

}  // namespace nccl_exporter::exporter
