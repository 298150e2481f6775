// SPDX-License-Identifier: Apache-2.0
// Directory access. Every path is looked up again, so that no descriptor keeps a file system busy.
#include "collector/segments/segment_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/shm_layout.h"

namespace nccl_exporter::collector {
DirectoryNames::DirectoryNames(FileDescriptor directory)
    : directory_(directory.is_open() ? ::fdopendir(directory.number()) : nullptr) {
  if (!directory_) return;
  directory.Release();
  guard_ = MountGuard(descriptor());
}

const dirent* DirectoryNames::Next() {
  errno = 0;
  const dirent* const entry = ::readdir(directory_.get());
  if (entry != nullptr) ++count_;
  return entry;
}

FileDescriptor SegmentDirectory::OpenParent() const {
  const size_t end = path_.rfind('/');
  const std::string parent = end == std::string::npos ? "." : end == 0 ? "/" : path_.substr(0, end);
  return FileDescriptor(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

FileDescriptor SegmentDirectory::Open() const {
  if (!is_found_) return FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const FileDescriptor parent = OpenParent();
  if (!parent.is_open()) return FileDescriptor();
  const std::string name = Name();
  struct stat status {};
  const MountGuard guard(parent.number());
  if (guard.LookAt(name.c_str(), status) != MountGuard::Sight::kHere) {
    errno = ENOENT;
    return FileDescriptor();
  }
  FileDescriptor directory = OpenInside(parent.number(), name.c_str(), O_RDONLY | O_DIRECTORY);
  if (!owner_ || !directory.is_open()) return directory;
  if (::fstat(directory.number(), &status) == 0 && status.st_uid == *owner_) return directory;
  errno = ENOENT;
  return FileDescriptor();
}

SegmentDirectory::Listing SegmentDirectory::List(DirectoryNames& names, int64_t& effort,
                                                 const Visit& visit, const Visit& visit_directory,
                                                 std::string_view prefix) const {
  if (!names.is_open()) {
    names = OpenNames();
    if (!names.is_open()) return errno == ENOENT ? Listing::kMissing : Listing::kUnreadable;
  }
  while (effort > 0) {
    const dirent* const entry = names.Next();
    if (entry == nullptr) return errno == 0 ? Listing::kComplete : Listing::kUnreadable;
    --effort;
    const std::string name = entry->d_name;
    if (!name.starts_with(prefix)) continue;
    const bool is_segment = prefix.empty() && name.ends_with(layout::kFileSuffix);
    const bool may_be_directory = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
    if (!is_segment && !(visit_directory && may_be_directory)) continue;
    struct stat status {};
    const MountGuard::Sight sight = names.guard().LookAt(entry->d_name, status);
    if (sight == MountGuard::Sight::kGone) continue;
    if (sight == MountGuard::Sight::kElsewhere) status.st_mode = 0;
    if (is_segment) {
      visit(names.descriptor(), name, status);
    } else if (S_ISDIR(status.st_mode)) {
      visit_directory(names.descriptor(), name, status);
    }
  }
  return Listing::kPartial;
}

std::optional<SegmentFile> SegmentDirectory::OpenFile(const std::string& name, SegmentError* error,
                                                      std::string* detail) const {
  const FileDescriptor directory = Open();
  *error = SegmentError::kOpenFailed;
  *detail = std::strerror(errno);
  if (!directory.is_open()) return std::nullopt;
  return SegmentFile::Open(directory.number(), name, error, detail);
}

bool SegmentDirectory::HasChanged(const std::string& name, const FileStamp& stamp) const {
  const FileDescriptor directory = Open();
  struct stat status {};
  return directory.is_open() &&
         MountGuard(directory.number()).LookAt(name.c_str(), status) != MountGuard::Sight::kGone &&
         stamp != FileStamp(status);
}

void SegmentDirectory::RemoveIfEmpty() const {
  const FileDescriptor parent = OpenParent();
  if (is_found_ && parent.is_open()) ::unlinkat(parent.number(), Name().c_str(), AT_REMOVEDIR);
}

// Between the look and the unlinking another file could take the name; as names are drawn at
// random, nobody's does.
bool SegmentDirectory::Unlink(const std::string& name, const FileKey& key) const {
  const FileDescriptor directory = Open();
  if (!directory.is_open()) return errno == ENOENT;
  struct stat status {};
  if (MountGuard(directory.number()).LookAt(name.c_str(), status) == MountGuard::Sight::kGone)
    return errno == ENOENT;
  if (KeyOf(status) != key || !S_ISREG(status.st_mode)) return true;
  return ::unlinkat(directory.number(), name.c_str(), 0) == 0 || errno == ENOENT;
}

}  // namespace nccl_exporter::collector
