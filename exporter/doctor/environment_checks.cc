// SPDX-License-Identifier: Apache-2.0
// Checks of directories and of a process's environment.
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include "exporter/catalogue/nearest_name.h"
#include "exporter/doctor/checks.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// Accounts below are of the system, as the plugin sees it (plugin/segment/segment.cc).
constexpr uid_t kFirstUser = 1000;

constexpr std::string_view kPluginPrefix = "NCCL_EXPORTER_";

bool MayWrite(const struct stat& status, const Writer& writer) {
  constexpr mode_t kWriteAndPass = 03;
  if (writer.uid == 0) return true;
  const unsigned shift = status.st_uid == writer.uid ? 6 : status.st_gid == writer.gid ? 3 : 0;
  return (status.st_mode >> shift & kWriteAndPass) == kWriteAndPass;
}

std::string FileSystemText(const std::string& path, uint64_t& free_bytes, bool& is_in_memory) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return std::string("statfs: ") + std::strerror(errno);
  free_bytes = static_cast<uint64_t>(status.f_bavail) * static_cast<uint64_t>(status.f_bsize);
  is_in_memory = status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
  return fmt::format("{}, {} MiB free",
                     is_in_memory ? "tmpfs" : fmt::format("file system {:#x}", status.f_type),
                     free_bytes >> 20);
}

// Compares what follows the common beginning, of which no slip is left.
std::string LikelyVariable(std::string_view name) {
  std::vector<std::string_view> ends;
  for (const std::string_view known : PluginVariables())
    ends.push_back(known.substr(kPluginPrefix.size()));
  const std::string_view likely = LikelyName(name.substr(kPluginPrefix.size()), ends);
  return likely.empty() ? "" : std::string(kPluginPrefix) + std::string(likely);
}

Check Missing(Check check, int error, bool was_chosen) {
  check.detail = std::strerror(error);
  if (error == ENOENT && !was_chosen) {
    check.verdict = Verdict::kWarn;
    check.detail += ": the plugin takes the next directory";
  } else {
    check.verdict = Verdict::kFail;
  }
  check.change = "install -d -m 1777 " + check.what.substr(check.what.find('/'));
  return check;
}

}  // namespace

Check CheckDirectory(const std::string& path, const Writer& writer, bool was_chosen) {
  Check check{.what = "directory " + path, .detail = {}, .change = {}};
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return Missing(std::move(check), errno, was_chosen);
  const auto fail = [&](std::string detail, std::string change) {
    check.verdict = Verdict::kFail;
    check.detail = std::move(detail);
    check.change = std::move(change);
    return check;
  };
  if (!S_ISDIR(status.st_mode))
    return fail("it is no directory",
                "remove it and make a directory, or give another --segment.dir");
  const std::string mode =
      fmt::format("mode {:o} of user {}", status.st_mode & 07777, status.st_uid);
  if (!MayWrite(status, writer))
    return fail(fmt::format("{}, where user {} cannot make files", mode, writer.uid),
                "chmod 1777 " + path);
  const mode_t others = status.st_uid == writer.uid ? S_IWOTH : S_IWGRP | S_IWOTH;
  if ((status.st_mode & others) != 0 && (status.st_mode & S_ISVTX) == 0)
    return fail(mode + ", where users can remove files of others: the plugin does not use it",
                "chmod +t " + path);
  if (status.st_uid >= kFirstUser && status.st_uid != writer.uid) {
    check.verdict = Verdict::kWarn;
    check.change = "chown root " + path + ", unless root has mounted it";
  }
  uint64_t free_bytes = 0;
  bool is_in_memory = false;
  const std::string file_system = FileSystemText(path, free_bytes, is_in_memory);
  check.detail = mode + ", " + file_system;
  if (free_bytes < kLeastFreeBytes)
    return fail(check.detail, fmt::format("make {} MiB of room", kLeastFreeBytes >> 20));
  if (!is_in_memory) {
    check.verdict = Verdict::kWarn;
    check.change = "use a tmpfs: counters on a disk or a network cost writes";
  }
  return check;
}

Environment ParseEnvironment(const std::string& text) {
  Environment environment;
  std::istringstream entries{text};
  for (std::string entry; std::getline(entries, entry, '\0');) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos)
      environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

const std::vector<std::string_view>& PluginVariables() {
  static const std::vector<std::string_view> kNames{"NCCL_EXPORTER_ENABLE",
                                                    "NCCL_EXPORTER_DIR",
                                                    "NCCL_EXPORTER_KERNEL_TIMING",
                                                    "NCCL_EXPORTER_COMMUNICATORS",
                                                    "NCCL_EXPORTER_RETENTION_SECONDS",
                                                    "NCCL_EXPORTER_SAMPLING",
                                                    "NCCL_EXPORTER_SAMPLING_PERIOD_SECONDS",
                                                    "NCCL_EXPORTER_SAMPLING_LEARNING_SECONDS",
                                                    "NCCL_EXPORTER_KERNEL_PHASES"};
  return kNames;
}

std::vector<Check> CheckEnvironment(const Environment& environment) {
  std::vector<Check> checks;
  const auto plugin = environment.find("NCCL_PROFILER_PLUGIN");
  if (plugin == environment.end()) {
    checks.push_back({.verdict = Verdict::kFail,
                      .what = "NCCL_PROFILER_PLUGIN",
                      .detail = "it was not set when the process started",
                      .change = "set it to the path of libnccl-profiler-exporter.so on all ranks"});
  } else {
    checks.push_back(
        {.what = "NCCL_PROFILER_PLUGIN", .detail = Printable(plugin->second), .change = {}});
  }
  const std::vector<std::string_view>& known = PluginVariables();
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kPluginPrefix)) continue;
    Check check{.what = Printable(name), .detail = Printable(value), .change = {}};
    if (std::ranges::find(known, name) == known.end()) {
      const std::string likely = LikelyVariable(name);
      check.verdict = Verdict::kWarn;
      check.detail = "the plugin does not read it";
      check.change = likely.empty() ? "remove it" : "did you mean " + likely + "?";
    } else if (name == "NCCL_EXPORTER_ENABLE" && value == "0") {
      check.verdict = Verdict::kFail;
      check.detail = "0: the plugin is switched off";
      check.change = "remove it";
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace nccl_exporter::exporter
