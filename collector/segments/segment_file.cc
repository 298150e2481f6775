// SPDX-License-Identifier: Apache-2.0
// Opens and reads segment files.
#include "collector/segments/segment_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collector/segments/mount_guard.h"

namespace nccl_exporter::collector {
namespace {

int64_t NanosecondsOf(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileStamp::FileStamp(const struct stat& status)
    : modified_realtime_ns(NanosecondsOf(status.st_mtim)),
      changed_realtime_ns(NanosecondsOf(status.st_ctim)),
      bytes(status.st_size) {}

std::optional<SegmentFile> SegmentFile::Open(int directory, const std::string& name,
                                             SegmentError* error, std::string* detail) {
  FileDescriptor descriptor = OpenInside(directory, name.c_str(), O_RDONLY);
  if (!descriptor.is_open()) {
    const bool is_other = errno == ELOOP || errno == EXDEV;
    *error = is_other ? SegmentError::kNotARegularFile : SegmentError::kOpenFailed;
    *detail = std::strerror(errno);
    return std::nullopt;
  }
  SegmentFile file(std::move(descriptor));
  if (!S_ISREG(file.Status().st_mode)) {
    *error = SegmentError::kNotARegularFile;
    *detail = "not a regular file";
    return std::nullopt;
  }
  return file;
}

struct stat SegmentFile::Status() const {
  struct stat status {};
  ::fstat(descriptor_.number(),
          &status);  // cannot fail on an open descriptor; zeros would be no regular file
  return status;
}

Writer SegmentFile::FindWriter() const {
  return nccl_exporter::collector::FindWriter(descriptor_.number());
}

ssize_t SegmentFile::Read(uint64_t offset, std::span<std::byte> into) const {
  size_t copied = 0;
  while (copied < into.size()) {
    const ssize_t length = ::pread(descriptor_.number(), into.data() + copied, into.size() - copied,
                                   static_cast<off_t>(offset + copied));
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return -1;
    if (length == 0) break;
    copied += static_cast<size_t>(length);
  }
#if !defined(NCCL_EXPORTER_TSAN)                        // ThreadSanitizer knows no fences
  std::atomic_thread_fence(std::memory_order_acquire);  // Arm reorders loads of two copies
#endif
  return static_cast<ssize_t>(copied);
}

}  // namespace nccl_exporter::collector
