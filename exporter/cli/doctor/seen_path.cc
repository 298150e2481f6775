// SPDX-License-Identifier: Apache-2.0
// A walk by descriptors, component by component: openat2(RESOLVE_IN_ROOT) needs Linux 5.6, and
// sandboxes refuse it.
#include "exporter/cli/doctor/seen_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

constexpr int kMostLinks = 40;      // as the kernel's
constexpr size_t kMostDepth = 256;  // descriptors that are open at a time

// Components of a path that are still to go, the next one last.
class Rest {
 public:
  void Prepend(std::string_view path) {
    std::vector<std::string> parts;
    while (!path.empty()) {
      const size_t slash = path.find('/');
      const std::string_view part = path.substr(0, slash);
      if (!part.empty() && part != ".") parts.emplace_back(part);
      path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    }
    parts_.insert(parts_.end(), parts.rbegin(), parts.rend());
  }
  bool is_empty() const { return parts_.empty(); }
  std::string Next() {
    std::string part = std::move(parts_.back());
    parts_.pop_back();
    return part;
  }

 private:
  std::vector<std::string> parts_;
};

OpenedFile None(int reason) {
  errno = reason;
  return {};
}

// `way` has the root and the directories down from it: .. never leaves the root, whatever is moved
// meanwhile.
OpenedFile FindBelow(OpenedFile root, std::string_view path) {
  std::vector<OpenedFile> way;
  way.push_back(std::move(root));
  Rest rest;
  rest.Prepend(path);
  int links = 0;
  while (!rest.is_empty()) {
    const std::string part = rest.Next();
    if (part == "..") {
      if (way.size() > 1) way.pop_back();
      continue;
    }
    OpenedFile next(::openat(way.back().number(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next.is_open()) return {};
    if (!S_ISLNK(next.status().st_mode)) {
      if (way.size() == kMostDepth) return None(ELOOP);
      way.push_back(std::move(next));
      continue;
    }
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlinkat(next.number(), "", target.data(), target.size());
    if (length <= 0) return None(ENOENT);
    if (++links > kMostLinks) return None(ELOOP);
    if (target[0] == '/') way.resize(1);
    rest.Prepend({target.data(), static_cast<size_t>(length)});
  }
  return std::move(way.back());
}

}  // namespace

OpenedFile::OpenedFile(int number) : number_(number) {
  if (number_ < 0 || ::fstat(number_, &status_) == 0) return;
  const int reason = errno;
  ::close(std::exchange(number_, -1));
  errno = reason;
}

OpenedFile::~OpenedFile() {
  const int reason = errno;
  if (number_ >= 0) ::close(number_);
  errno = reason;
}

OpenedFile Find(const SeenPath& path) {
  if (path.root.empty()) return OpenedFile(::open(path.path.c_str(), O_PATH | O_CLOEXEC));
  OpenedFile root(::open(path.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return root.is_open() ? FindBelow(std::move(root), path.path) : OpenedFile();
}

OpenedFile OpenRegular(const SeenPath& path, std::string& fault) {
  const OpenedFile found = Find(path);
  if (!found.is_open()) {
    fault = std::strerror(errno);
    return {};
  }
  if (!S_ISREG(found.status().st_mode)) {
    fault = "it is no regular file";
    return {};
  }
  // The same inode, whatever the path leads to by now.
  const std::string same = "/proc/self/fd/" + std::to_string(found.number());
  OpenedFile file(::open(same.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.is_open()) fault = std::strerror(errno);
  return file;
}

}  // namespace nccl_exporter::exporter
