// SPDX-License-Identifier: Apache-2.0
// MountGuard, looks at names and opens them without leaving the mount of their directory. A user
// who may write to a directory may mount a file system of his own there (FUSE), and one that never
// answers would hold us for as long. No call here waits for it.
#pragma once

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {

// Opens `name` in `directory`, if it is no link and no mount; errno is EXDEV of a mount. A kernel
// before 5.6 has no such call: there a mount that is made since the last look at the name is
// opened.
inline FileDescriptor OpenInside(int directory, const char* name, int flags) {
  flags |= O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
  const long opened = ::syscall(SYS_openat2, directory, name, &how, sizeof(how));
  if (opened >= 0 || (errno != ENOSYS && errno != EPERM))
    return FileDescriptor(static_cast<int>(opened));
  return FileDescriptor(::openat(directory, name, flags));
}

class MountGuard {
 public:
  enum class Sight : uint8_t { kGone, kElsewhere, kHere };

  MountGuard() = default;
  explicit MountGuard(int directory) : directory_(directory) {
    struct stat status {};
    if (Statx(directory, "", AT_EMPTY_PATH, status, own_mount_)) own_device_ = status.st_dev;
  }

  // Looks at the file that `name` stands for, without following links.
  Sight LookAt(const char* name, struct stat& status) const {
    uint64_t mount = 0;
    if (!Statx(directory_, name, 0, status, mount)) return Sight::kGone;
    const bool is_here =
        mount != 0 && own_mount_ != 0 ? mount == own_mount_ : status.st_dev == own_device_;
    return is_here ? Sight::kHere : Sight::kElsewhere;
  }

 private:
  // `mount` is 0 where the kernel does not report it (before 5.8).
  static bool Statx(int directory, const char* name, int flags, struct stat& status,
                    uint64_t& mount) {
    flags |= AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    struct statx found {};
    if (::statx(directory, name, flags | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID,
                &found) != 0)
      return errno == ENOSYS && ::fstatat(directory, name, &status, flags) == 0;
    status = {};
    status.st_mode = found.stx_mode;
    status.st_uid = found.stx_uid;
    status.st_size = static_cast<off_t>(found.stx_size);
    status.st_ino = found.stx_ino;
    status.st_dev = ::makedev(found.stx_dev_major, found.stx_dev_minor);
    status.st_mtim = {.tv_sec = found.stx_mtime.tv_sec,
                      .tv_nsec = static_cast<long>(found.stx_mtime.tv_nsec)};
    status.st_ctim = {.tv_sec = found.stx_ctime.tv_sec,
                      .tv_nsec = static_cast<long>(found.stx_ctime.tv_nsec)};
    mount = (found.stx_mask & STATX_MNT_ID) != 0 ? found.stx_mnt_id : 0;
    return true;
  }

  int directory_ = -1;
  uint64_t own_mount_ = 0;
  dev_t own_device_ = 0;
};

}  // namespace nccl_exporter::collector
