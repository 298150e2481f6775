// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/directory_states.h"

#include <dirent.h>
#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

struct Close {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using OpenDirectory = std::unique_ptr<DIR, Close>;

// Names of a pattern's parent that are looked at: anybody may fill /dev/shm.
constexpr int kMostNames = 4096;

std::string_view StateAfter(int error) {
  if (error == 0) return "readable";
  if (error == ENOENT) return "missing";
  return error == ENOTDIR ? "not_a_directory" : "unreadable";
}

WatchedDirectory StateOf(const std::string& path, OpenDirectory& opened) {
  opened.reset(::opendir(path.c_str()));
  const int error = opened ? 0 : errno;
  return {.path = path,
          .state = StateAfter(error),
          .detail = error == 0 ? "" : std::generic_category().message(error)};
}

WatchedDirectory StateOfPattern(const std::string& pattern) {
  const size_t name_at = pattern.rfind('/') + 1;
  OpenDirectory parent;
  WatchedDirectory state = StateOf(name_at == 0 ? "." : pattern.substr(0, name_at), parent);
  state.path = pattern;
  if (!parent) return state;
  const std::string prefix = pattern.substr(name_at, pattern.size() - name_at - 1);
  int found = 0;
  for (int names = 0; names < kMostNames; ++names) {
    const dirent* const entry = ::readdir(parent.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    const bool is_of_user = name.starts_with(prefix) && name.size() > prefix.size() &&
                            name.find_first_not_of("0123456789", prefix.size()) == name.npos;
    if (is_of_user && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN)) ++found;
  }
  state.state = found > 0 ? "readable" : "missing";
  state.detail = found > 0 ? fmt::format("{} of users", found) : "no user has one";
  return state;
}

}  // namespace

std::vector<WatchedDirectory> DirectoryStates(const std::vector<std::string>& paths) {
  std::vector<WatchedDirectory> states;
  for (const std::string& path : paths) {
    OpenDirectory opened;
    states.push_back(collector::IsPrivatePattern(path) ? StateOfPattern(path)
                                                       : StateOf(path, opened));
  }
  return states;
}

}  // namespace nccl_exporter::exporter
