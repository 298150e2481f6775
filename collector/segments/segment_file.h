// SPDX-License-Identifier: Apache-2.0
// One segment file, held open: read with pread and never mapped, so that a truncated file is a
// short read, not a SIGBUS.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "collector/node_snapshot.h"
#include "collector/reader/segment_source.h"
#include "collector/reader/slot_directory.h"
#include "collector/segments/file_descriptor.h"
#include "collector/segments/liveness.h"

namespace nccl_exporter::collector {

// A file that replaces another is another one.
inline FileKey KeyOf(const struct stat& status) {
  return {.device = status.st_dev, .inode = status.st_ino};
}

// Signs of a change of a file other than through a mapping.
struct FileStamp {
  int64_t modified_realtime_ns = 0;
  int64_t changed_realtime_ns = 0;  // owner and permissions
  int64_t bytes = 0;

  explicit FileStamp(const struct stat& status);
  bool operator==(const FileStamp&) const = default;
  bool HasContentOf(const FileStamp& other) const {
    return modified_realtime_ns == other.modified_realtime_ns && bytes == other.bytes;
  }
};

class SegmentFile : public SegmentSource {
 public:
  // Opens `name` in the directory that is open as `directory`. Never follows a link, never waits
  // for a FIFO's other end, and does not leave the directory's mount. On failure `error` and
  // `detail` are set.
  static std::optional<SegmentFile> Open(int directory, const std::string& name,
                                         SegmentError* error, std::string* detail);

  struct stat Status() const;
  // The process that writes it, if it is alive.
  Writer FindWriter() const;

  uint64_t Size() const override { return static_cast<uint64_t>(Status().st_size); }
  uint64_t OwnerUid() const override { return Status().st_uid; }
  ssize_t Read(uint64_t offset, std::span<std::byte> into) const override;

 private:
  explicit SegmentFile(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}

  FileDescriptor descriptor_;
};

// One look at a segment: what a snapshot and the comparison of arrivals are both made of. It owns
// its file together with all who read it: the file stays open for as long as one of them wants it.
struct SegmentLook {
  std::shared_ptr<const SegmentFile> file;
  bool is_alive = false;        // whether its writer lives
  int64_t clock_offset_ns = 0;  // see ReadTerms
  SlotDirectory slots;          // of a live one: a dead one's slots do not change
};

// Every segment that is followed.
using SegmentLooks = std::map<FileKey, SegmentLook>;

}  // namespace nccl_exporter::collector
