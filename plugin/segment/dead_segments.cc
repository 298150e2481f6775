// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin/oldest_glibc.h"
#include "plugin/segment/atomics.h"
#include "plugin/segment/segment.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {
namespace {

constexpr size_t kNameBytes = 16 + 1 + 16 + sizeof(layout::kFileSuffix) - 1;
constexpr size_t kWordBytes = sizeof(uint64_t);
// Bytes of a slot up to its last time.
constexpr size_t kTimesBytes = offsetof(layout::CommunicatorSlot, in_flight);

bool IsName(const char* name) {
  const size_t length = std::strlen(name);
  return length == kNameBytes &&
         std::strcmp(name + length - (sizeof(layout::kFileSuffix) - 1), layout::kFileSuffix) == 0;
}

// Segments that this process maps, by name.
class OwnNames {
 public:
  // False: they are not known.
  bool Read() {
    FILE* const maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return false;
    char line[1024];
    while (count_ < names_.size() && std::fgets(line, sizeof(line), maps) != nullptr) Add(line);
    std::fclose(maps);
    return count_ < names_.size();
  }
  bool Has(const char* name) const {
    return std::any_of(names_.begin(), names_.begin() + count_, [name](const auto& own) {
      return std::memcmp(own.data(), name, kNameBytes) == 0;
    });
  }

 private:
  void Add(const char* line) {
    const char* const slash = std::strrchr(line, '/');
    if (slash == nullptr || std::strlen(slash + 1) < kNameBytes) return;
    std::memcpy(names_[count_].data(), slash + 1, kNameBytes);
    if (IsName(names_[count_].data())) ++count_;
  }

  std::array<std::array<char, kNameBytes + 1>, 64> names_{};
  size_t count_ = 0;
};

class Removal {
 public:
  Removal(int directory, uint64_t retention_ns, char* slot)
      : directory_(directory), retention_ns_(retention_ns), slot_(slot) {}

  void Run(DIR* names) {
    for (uint32_t listed = 0; listed < kMostListedNames && files_ < kMostDeadSegments; ++listed) {
      const dirent* const entry = readdir(names);
      if (entry == nullptr) return;
      if (IsName(entry->d_name) && !Consider(entry->d_name)) return;
    }
  }

 private:
  // False: nothing further is to be considered.
  bool Consider(const char* name) {
    struct stat status {};
    if (!ReadStatusAt(directory_, name, &status, AT_SYMLINK_NOFOLLOW) || !IsOurs(status))
      return true;
    if (!knows_own_ && !own_.Read()) return false;
    knows_own_ = true;
    if (own_.Has(name)) return true;
    const int file = openat(directory_, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return true;
    ++files_;
    if (ReadStatus(file, &status) && IsOurs(status) && IsUnlocked(file) && IsOver(file, status))
      unlinkat(directory_, name, 0);
    close(file);
    return true;
  }

  static bool IsOurs(const struct stat& status) {
    return S_ISREG(status.st_mode) && status.st_uid == geteuid();
  }
  static bool IsUnlocked(int file) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

  bool IsOver(int file, const struct stat& status) {
    const uint64_t now_ns = ReadClock(CLOCK_REALTIME);
    uint64_t life_ns = static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                       static_cast<uint64_t>(status.st_mtim.tv_nsec);
    uint64_t retention_ns = retention_ns_;
    alignas(8) char header[offsetof(layout::SegmentHeader, plugin_version)] = {};
    const bool is_complete =
        pread(file, header, sizeof(header), 0) == static_cast<ssize_t>(sizeof(header)) &&
        WordAt(header, offsetof(layout::SegmentHeader, version)) != 0;
    if (is_complete) {
      if (!ReadTimes(file, header, &life_ns)) return false;
      retention_ns = WordAt(header, offsetof(layout::SegmentHeader, retention_ns));
    }
    return now_ns > life_ns && now_ns - life_ns > retention_ns;
  }

  // The latest of `life_ns` and of the times in the segment. False: it is not known.
  bool ReadTimes(int file, const char* header, uint64_t* life_ns) {
    using Header = layout::SegmentHeader;
    const uint64_t slot_bytes = WordAt(header, offsetof(Header, slot_bytes));
    const uint64_t slot_count = WordAt(header, offsetof(Header, slot_count));
    const uint64_t first = WordAt(header, offsetof(Header, header_bytes));
    const bool is_readable = WordAt(header, offsetof(Header, magic)) == layout::kMagic &&
                             WordAt(header, offsetof(Header, version)) >> 32 == layout::kMajor &&
                             slot_bytes >= kTimesBytes && slot_bytes <= kMostSlotBytes &&
                             first <= kMostSlotBytes;
    if (!is_readable) return false;
    const uint64_t start_ns = WordAt(header, offsetof(Header, start_monotonic_ns));
    const uint64_t realtime_ns = WordAt(header, offsetof(Header, start_realtime_ns));
    for (uint64_t slot = 0; slot < slot_count; ++slot) {
      if (slots_++ == kMostDeadSlots) return files_ = kMostDeadSegments, false;
      const auto offset = static_cast<off_t>(first + slot * slot_bytes);
      if (pread(file, slot_, kTimesBytes, offset) != static_cast<ssize_t>(kTimesBytes)) return true;
      // Behind a free slot none but the last is in use.
      if (WordAt(slot_, 0) == 0 && slot + 1 < slot_count) slot = slot_count - 2;
      const uint64_t latest_ns = LatestIn(slot_);
      if (latest_ns > start_ns) *life_ns = std::max(*life_ns, realtime_ns + (latest_ns - start_ns));
    }
    return true;
  }

  // CLOCK_MONOTONIC.
  static uint64_t LatestIn(const char* slot) {
    using Slot = layout::CommunicatorSlot;
    using Block = layout::FunctionBlock;
    uint64_t latest = std::max(WordAt(slot, offsetof(Slot, created_monotonic_ns)),
                               WordAt(slot, offsetof(Slot, closed_monotonic_ns)));
    for (size_t i = 0; i < kFunctionCount; ++i) {
      const char* const block = slot + offsetof(Slot, functions) + i * sizeof(Block);
      latest = std::max({latest, WordAt(block, offsetof(Block, last_start_ns)),
                         WordAt(block, offsetof(Block, last_completion_ns))});
    }
    return latest;
  }
  static uint64_t WordAt(const char* bytes, size_t offset) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + offset, kWordBytes);
    return word;
  }

  static constexpr uint64_t kMostSlotBytes = 1 << 20;

  const int directory_;
  const uint64_t retention_ns_;
  char* const slot_;  // a copy
  OwnNames own_;
  bool knows_own_ = false;
  uint32_t files_ = 0;
  uint32_t slots_ = 0;
};

}  // namespace

void RemoveDeadSegments(int directory, uint64_t retention_ns) {
  const int listed = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const names = listed >= 0 ? fdopendir(listed) : nullptr;
  if (names == nullptr) {
    if (listed >= 0) close(listed);
    return;
  }
  if (char* const slot = static_cast<char*>(std::malloc(kTimesBytes))) {
    Removal(directory, retention_ns, slot).Run(names);
    std::free(slot);
  }
  closedir(names);
}

}  // namespace nccl_exporter::plugin
