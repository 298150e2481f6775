// SPDX-License-Identifier: Apache-2.0
// A walk by descriptors, component by component: openat2(RESOLVE_IN_ROOT) needs Linux 5.6, and
// sandboxes refuse it.
#include "exporter/cli/doctor/seen_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

constexpr int kMostLinks = 40;      // as the kernel's
constexpr size_t kMostDepth = 256;  // descriptors that are open at a time

OpenedFile None(int reason) {
  errno = reason;
  return {};
}

// `way` has the root and the directories down from it: .. never leaves the root, whatever is moved
// meanwhile.
OpenedFile FindBelow(OpenedFile root, std::string rest) {
  std::vector<OpenedFile> way{std::move(root)};
  int links = 0;
  for (size_t at = 0; at < rest.size();) {
    const size_t slash = std::min(rest.find('/', at), rest.size());
    const std::string part = rest.substr(at, slash - at);
    at = slash + 1;
    if (part.empty() || part == ".") continue;
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
    rest.replace(0, std::min(at, rest.size()),
                 std::string(target.data(), static_cast<size_t>(length)) + '/');
    at = 0;
  }
  return way.back();
}

}  // namespace

OpenedFile::OpenedFile(int number) {
  if (number < 0) return;
  number_ = {new int(number), [](const int* owned) {
               const int reason = errno;
               ::close(*owned);
               delete owned;
               errno = reason;
             }};
  if (::fstat(number, &status_) != 0) number_.reset();
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
  // This inode, whatever the path leads to by now.
  const std::string same = "/proc/self/fd/" + std::to_string(found.number());
  OpenedFile file(::open(same.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.is_open()) fault = std::strerror(errno);
  return file;
}

}  // namespace nccl_exporter::exporter
