// SPDX-License-Identifier: Apache-2.0
// Folders and texts of procfs and cgroups, as the kernel writes them. For any thread.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "collector/segments/liveness.h"

namespace nccl_exporter::collector {

// Threads, descriptors and devices that are looked at, at most: more than a rank has. Bounds the
// time, some microseconds each.
inline constexpr size_t kMostNames = 1024;

// Names in a folder, in order, kMostNames at most. None if it cannot be opened.
inline std::vector<std::string> NamesIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end && names.size() < kMostNames; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

// The number behind the first `name`, and spaces.
inline std::optional<uint64_t> NumberBehind(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of(" \t", at + name.size()), text.size()));
  uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// Major faults of all threads in a text of /proc/PID/stat: field 12 of proc(5), the tenth behind
// the name, which may contain any character.
inline std::optional<uint64_t> MajorFaults(std::string_view stat) {
  size_t at = stat.rfind(") ");
  for (int field = 2; field < 12 && at != std::string_view::npos; ++field)
    at = stat.find(' ', at + 1);
  return at == std::string_view::npos ? std::nullopt : NumberBehind(stat.substr(at), " ");
}

// Nanoseconds in a text of cpu.stat: v2 has microseconds, v1 nanoseconds.
inline std::optional<uint64_t> ThrottledNs(std::string_view cpu_stat) {
  const auto us = NumberBehind(cpu_stat, "throttled_usec");
  return us ? std::optional(*us * 1000) : NumberBehind(cpu_stat, "throttled_time");
}

// The path in the line NUMBER:CONTROLLERS:PATH of /proc/PID/cgroup; v2 has no controllers. Nothing
// where the cgroup lies outside the cgroup namespace of this process.
inline std::optional<std::string> CgroupOf(const std::string& membership,
                                           const std::string& controller) {
  std::istringstream lines(membership);
  std::string number, controllers, path;
  while (std::getline(lines, number, ':') && std::getline(lines, controllers, ':') &&
         std::getline(lines, path)) {
    if ((',' + controllers + ',').find(',' + controller + ',') == std::string::npos) continue;
    if (!path.starts_with('/') || path.find("/..") != std::string::npos) return std::nullopt;
    return path == "/" ? "" : path;
  }
  return std::nullopt;
}

// The statistics of the innermost cgroup with a quota of CPU time, from `path` up to the mount of
// its controller; empty where there is none.
inline std::string ThrottlingFile(const std::string& mount, std::string path) {
  for (;; path.resize(path.rfind('/'))) {
    const std::string cgroup = mount + path;
    const std::string quota =
        ReadProcFile(cgroup + "/cpu.max") + ReadProcFile(cgroup + "/cpu.cfs_quota_us");
    if (!quota.empty() && quota[0] != 'm' && quota[0] != '-') return cgroup + "/cpu.stat";
    if (path.empty()) return "";
  }
}

}  // namespace nccl_exporter::collector
