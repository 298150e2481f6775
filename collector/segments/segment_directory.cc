// SPDX-License-Identifier: Apache-2.0
// Directory access. Every path is looked up anew, so that no descriptor keeps a file system busy.
#include "collector/segments/segment_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>

#include "proto/shm_layout.h"

namespace nccl_exporter::collector {
namespace {

// A user's number as the plugin writes it, without leading zeros.
std::optional<uint64_t> UserOf(std::string_view text) {
  uint32_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
  const bool is_plain = text == "0" || !text.starts_with('0');
  return error == std::errc() && end == text.data() + text.size() && is_plain
             ? std::optional<uint64_t>(uid)
             : std::nullopt;
}

}  // namespace

DirectoryNames::DirectoryNames(FileDescriptor directory)
    : directory_(::fdopendir(directory.number())) {
  if (directory_) directory.Release();
}

const char* DirectoryNames::Next() {
  errno = 0;
  const dirent* const entry = ::readdir(directory_.get());
  if (entry == nullptr) return nullptr;
  ++count_;
  return entry->d_name;
}

FileDescriptor SegmentDirectory::Open() const {
  const int no_link = owner_ ? O_NOFOLLOW : 0;
  FileDescriptor directory(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_link));
  struct stat status {};
  if (!owner_ || !directory.is_open()) return directory;
  if (::fstat(directory.number(), &status) == 0 && status.st_uid == *owner_) return directory;
  errno = ENOENT;
  return FileDescriptor();
}

SegmentDirectory::Listing SegmentDirectory::List(DirectoryNames& names, int64_t& effort,
                                                 const Visit& visit) const {
  if (!names.is_open()) {
    FileDescriptor opened = Open();
    if (!opened.is_open()) return errno == ENOENT ? Listing::kMissing : Listing::kUnreadable;
    names = DirectoryNames(std::move(opened));
    if (!names.is_open()) return Listing::kUnreadable;
  }
  while (effort > 0) {
    const char* const name = names.Next();
    if (name == nullptr) return errno == 0 ? Listing::kComplete : Listing::kUnreadable;
    --effort;
    struct stat status {};
    if (!std::string_view(name).ends_with(layout::kFileSuffix)) continue;
    if (::fstatat(names.descriptor(), name, &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;  // gone in the meantime
    visit(names.descriptor(), name, status);
  }
  return Listing::kPartial;
}

// Between the look and the unlinking another file could take the name; as names are drawn at
// random, nobody's does.
bool SegmentDirectory::Unlink(const std::string& name, const FileKey& key) const {
  const FileDescriptor directory = Open();
  if (!directory.is_open()) return errno == ENOENT;
  struct stat status {};
  if (::fstatat(directory.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT;
  if (KeyOf(status) != key || !S_ISREG(status.st_mode)) return true;
  return ::unlinkat(directory.number(), name.c_str(), 0) == 0 || errno == ENOENT;
}

bool FindPrivateDirectories(const std::string& pattern, DirectoryNames& names, int64_t& effort,
                            size_t limit, std::vector<SegmentDirectory>& found) {
  const size_t name_at = pattern.rfind('/') + 1;
  const std::string parent = name_at == 0 ? "." : pattern.substr(0, name_at);
  const std::string prefix = pattern.substr(name_at, pattern.size() - name_at - 1);
  if (!names.is_open()) {
    FileDescriptor opened(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.is_open()) names = DirectoryNames(std::move(opened));
    if (!names.is_open()) return true;
  }
  while (effort > 0 && found.size() < limit) {
    const char* const entry = names.Next();
    if (entry == nullptr) return true;
    --effort;
    const std::string_view name = entry;
    if (!name.starts_with(prefix)) continue;
    const std::optional<uint64_t> uid = UserOf(name.substr(prefix.size()));
    struct stat status {};
    if (!uid || ::fstatat(names.descriptor(), entry, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISDIR(status.st_mode) || status.st_uid != *uid ||
        (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
      continue;
    found.emplace_back(pattern.substr(0, name_at) + std::string(name), uid);
  }
  return found.size() >= limit;
}

}  // namespace nccl_exporter::collector
