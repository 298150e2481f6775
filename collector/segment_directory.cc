// SPDX-License-Identifier: Apache-2.0
// Directory access. Every path is looked up anew, so that no descriptor keeps a file system busy.
#include "collector/segment_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "proto/shm_layout.h"

namespace nccl_exporter {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

SegmentDirectory::Listing SegmentDirectory::List(const Visit& visit) const {
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path_.c_str()));
  if (!directory) return errno == ENOENT ? Listing::kMissing : Listing::kUnreadable;
  const int descriptor = ::dirfd(directory.get());
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) return errno == 0 ? Listing::kComplete : Listing::kUnreadable;
    struct stat status {};
    if (!std::string_view(entry->d_name).ends_with(layout::kFileSuffix)) continue;
    if (::fstatat(descriptor, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone in the meantime
    visit(descriptor, entry->d_name, status);
  }
}

// Between the look and the unlinking another file could take the name; as names are drawn at random, nobody's does.
bool SegmentDirectory::Unlink(const std::string& name, const FileKey& key) const {
  const FileDescriptor directory(::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) return errno == ENOENT;
  struct stat status {};
  if (::fstatat(directory.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  if (FileKey(status) != key || !S_ISREG(status.st_mode)) return true;
  return ::unlinkat(directory.number(), name.c_str(), 0) == 0 || errno == ENOENT;
}

}  // namespace nccl_exporter
