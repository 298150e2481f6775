// SPDX-License-Identifier: Apache-2.0
// IsOnSystemsTmpfs, whether users who fill a directory of segments fill a file system that the
// system needs, such as that of /run. For any thread.
#pragma once

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <istream>
#include <sstream>
#include <string>

namespace nccl_exporter::exporter {

// `mountinfo` is that of /proc/self. A tmpfs of the system's has a root that only root writes
// ("mode=755" in its options), and the directory is not that root. A tmpfs for everybody is mounted
// with mode 1777, which the kernel does not show. A bind mount, as in a container, shows the
// options of the file system behind it.
inline bool IsOnSystemsTmpfs(const std::string& directory, dev_t number, std::istream& mountinfo) {
  const std::string device = std::to_string(major(number)) + ':' + std::to_string(minor(number));
  bool is_systems = false;
  for (std::string line; std::getline(mountinfo, line);) {
    // ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS
    std::istringstream words(line);
    std::string skipped, of, root, mount_point, word;
    words >> skipped >> skipped >> of >> root >> mount_point;
    if (of != device) continue;
    if (root == "/" && mount_point == directory) return false;
    while (words >> word && word != "-") {
    }
    std::string type, options;
    words >> type >> skipped >> options;
    is_systems |= type == "tmpfs" && (',' + options + ',').find(",mode=755,") != std::string::npos;
  }
  return is_systems;
}

inline bool IsOnSystemsTmpfs(const std::string& directory, dev_t number) {
  std::ifstream mountinfo("/proc/self/mountinfo");
  return IsOnSystemsTmpfs(directory, number, mountinfo);
}

// False if the directory is missing.
inline bool IsOnSystemsTmpfs(const std::string& directory) {
  struct stat status {};
  return ::stat(directory.c_str(), &status) == 0 && IsOnSystemsTmpfs(directory, status.st_dev);
}

}  // namespace nccl_exporter::exporter
