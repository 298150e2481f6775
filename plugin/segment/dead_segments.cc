// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

#include "plugin/segment/atomics.h"
#include "plugin/segment/own_file.h"
#include "plugin/segment/segment.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {
namespace {

constexpr size_t kSuffixBytes = sizeof(layout::kFileSuffix) - 1;

bool HasSuffix(const char* text) {
  const size_t length = std::strlen(text);
  return length >= kSuffixBytes &&
         std::strcmp(text + length - kSuffixBytes, layout::kFileSuffix) == 0;
}

bool IsName(const char* name) {
  return std::strlen(name) == 16 + 1 + 16 + kSuffixBytes && HasSuffix(name);
}

// Whether this process maps a segment, or may map one: it is another copy of the plugin's.
bool MayMapSegment() {
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return true;
  char line[1024];
  bool is_found = false;
  while (!is_found && std::fgets(line, sizeof(line), maps) != nullptr) {
    line[std::strcspn(line, "\n")] = '\0';
    is_found = HasSuffix(line);
  }
  std::fclose(maps);
  return is_found;
}

// Whether the file is ours, and no system call has changed it for the retention time.
bool IsOld(const struct stat& status, uint64_t retention_ns) {
  const uint64_t changed_ns = static_cast<uint64_t>(status.st_ctim.tv_sec) * 1'000'000'000 +
                              static_cast<uint64_t>(status.st_ctim.tv_nsec);
  const uint64_t now_ns = ReadClock(CLOCK_REALTIME);
  return S_ISREG(status.st_mode) && status.st_uid == geteuid() && now_ns > changed_ns &&
         now_ns - changed_ns > retention_ns;
}

// Whether no process has the file mapped or open as its writer has.
bool IsDead(int file) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return flock(file, LOCK_EX | LOCK_NB) == 0 && fcntl(file, F_GETLK, &lock) == 0 &&
         lock.l_type == F_UNLCK;
}

// For how long the writer of a file has wanted it kept: ours if it has not said so yet, forever if
// the file has another layout.
uint64_t RetentionOf(int file, uint64_t ours_ns) {
  constexpr size_t kVersion = 0, kMagic = 1;
  constexpr size_t kRetention = offsetof(layout::SegmentHeader, retention_ns) / sizeof(uint64_t);
  static_assert(offsetof(layout::SegmentHeader, magic) == kMagic * sizeof(uint64_t));
  uint64_t words[kRetention + 1] = {};
  if (pread(file, words, sizeof(words), 0) != sizeof(words)) return ours_ns;
  const bool is_known = words[kMagic] == layout::kMagic && words[kVersion] >> 32 == layout::kMajor;
  if (words[kVersion] != 0 && !is_known) return ~uint64_t{0};
  return words[kRetention] != 0 ? words[kRetention] : ours_ns;
}

// Marks the file if it is dead; removes it if it was marked. False: it was not opened.
bool Bury(int directory, const char* name, uint64_t retention_ns) {
  constexpr mode_t kWritable = S_IWUSR | S_IWGRP | S_IWOTH;
  struct stat status {};
  const int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  if (IsDead(file) && ReadStatus(file, &status) && IsOld(status, RetentionOf(file, retention_ns))) {
    const mode_t mode = status.st_mode & 07777;
    (mode & kWritable) != 0 ? fchmod(file, mode & ~kWritable) : unlinkat(directory, name, 0);
  }
  close(file);
  return true;
}

}  // namespace

void RemoveDeadSegments(int directory, uint64_t retention_ns) {
  const int listed = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const names = listed >= 0 ? fdopendir(listed) : nullptr;
  if (names == nullptr) {
    if (listed >= 0) close(listed);
    return;
  }
  uint32_t opened = 0;
  bool maps_none = false;
  for (uint32_t i = 0; i < kMostListedNames && opened < kMostDeadSegments; ++i) {
    const dirent* const entry = readdir(names);
    if (entry == nullptr) break;
    struct stat status {};
    if (!IsName(entry->d_name) ||
        !ReadStatusAt(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ||
        !IsOld(status, retention_ns))
      continue;
    maps_none = maps_none || !MayMapSegment();
    if (!maps_none) break;
    if (Bury(directory, entry->d_name, retention_ns)) ++opened;
  }
  closedir(names);
}

}  // namespace nccl_exporter::plugin
