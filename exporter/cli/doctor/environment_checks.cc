// SPDX-License-Identifier: Apache-2.0
// Checks of directories and of a process's environment.
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "exporter/cli/doctor/checks.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/systems_tmpfs.h"
#include "exporter/text/nearest_name.h"
#include "plugin/options.h"

namespace nccl_exporter::exporter {
namespace {

// Accounts below are of the system, as the plugin sees it (plugin/segment/segment.cc).
constexpr uid_t kFirstUser = 1000;

constexpr std::string_view kPluginPrefix = "NCCL_EXPORTER_";
constexpr std::string_view kNcclPrefix = "NCCL_";
constexpr std::string_view kPluginVariable = "NCCL_PROFILER_PLUGIN";
constexpr const char* kSetPath = "set it to the path of libnccl-profiler-exporter.so on all ranks";

// What a segment needs of the file system, as seen through the mount of the directory.
void CheckFileSystem(const std::string& path, const OpenedFile& directory, Check& check) {
  struct statfs status {};
  if (::fstatfs(directory.number(), &status) != 0) {
    check.detail += std::string(", statfs: ") + std::strerror(errno);
    return;
  }
  const bool is_in_memory = status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
  const uint64_t free_bytes =
      static_cast<uint64_t>(status.f_bavail) * static_cast<uint64_t>(status.f_bsize);
  check.detail += fmt::format(
      ", {}, {} MiB free", is_in_memory ? "tmpfs" : fmt::format("file system {:#x}", status.f_type),
      free_bytes >> 20);
  const auto fail = [&](std::string_view detail, std::string change) {
    check.verdict = Verdict::kFail;
    check.detail += detail;
    check.change = std::move(change);
  };
  if ((status.f_flags & ST_RDONLY) != 0) {
    fail(", mounted read-only", "mount it writable (in a container: without :ro or readOnly)");
  } else if (free_bytes < kLeastFreeBytes) {
    fail("", fmt::format("make {} MiB of room", kLeastFreeBytes >> 20));
  } else if (status.f_files != 0 && status.f_ffree == 0) {
    fail(", no free inode", "remove files, or mount it with more inodes (nr_inodes)");
  } else if (IsOnSystemsTmpfs(path, directory.status().st_dev)) {
    check.verdict = Verdict::kWarn;
    check.detail += ", which the system needs: a user who fills it stops the node";
    check.change =
        "mount a tmpfs there: systemctl start 'run-nccl\\x2dexporter.mount' while no job runs";
  } else if (!is_in_memory) {
    check.verdict = Verdict::kWarn;
    check.change = "use a tmpfs: counters on a disk or a network cost writes";
  }
}

// A variable that a name may be a slip of. Behind the plugin's own prefix much may differ;
// elsewhere only what a finger does, since other programs have variables as well.
std::string_view LikelyVariable(std::string_view name) {
  constexpr size_t kMostSlips = 2;
  const std::vector<std::string_view>& known = PluginVariables();
  if (!name.starts_with(kPluginPrefix)) {
    const std::string_view nearest = NearestName(name, known);
    return EditDistance(name, nearest) <= kMostSlips ? nearest : std::string_view();
  }
  std::vector<std::string_view> ends;
  for (const std::string_view variable : known)
    ends.push_back(variable.substr(kPluginPrefix.size()));
  const std::string_view likely = LikelyName(name.substr(kPluginPrefix.size()), ends);
  const auto found = std::ranges::find(ends, likely);
  return likely.empty() ? likely : known[static_cast<size_t>(found - ends.begin())];
}

// The variable that is there in place of NCCL_PROFILER_PLUGIN; empty if there is none.
std::string MisspeltPlugin(const Environment& environment) {
  const std::array<std::string_view, 1> wanted{kPluginVariable.substr(kNcclPrefix.size())};
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kNcclPrefix)) continue;
    const std::string_view end = std::string_view(name).substr(kNcclPrefix.size());
    if (!LikelyName(end, wanted).empty()) return name;
  }
  return "";
}

Check CheckPluginVariable(const Environment& environment, bool has_segment) {
  Check check{.what = std::string(kPluginVariable), .detail = {}, .change = {}};
  if (const auto plugin = environment.find(check.what); plugin != environment.end()) {
    check.detail = Printable(plugin->second);
    if (SwitchesPluginsOff(plugin->second)) {
      check.verdict = Verdict::kFail;
      check.detail += ": NCCL loads no profiler plugin";
      check.change = kSetPath;
    }
  } else if (has_segment) {
    check.detail = "it was set after the start of the process, or in a nccl.conf";
  } else {
    const std::string misspelt = MisspeltPlugin(environment);
    check.verdict = Verdict::kFail;
    check.detail = "it was not set when the process started";
    check.change = misspelt.empty() ? kSetPath : "rename " + Printable(misspelt);
  }
  return check;
}

Check Missing(Check check, int error, bool was_chosen) {
  check.detail = std::strerror(error);
  if (error == ENOENT && !was_chosen) {
    check.verdict = Verdict::kWarn;
    check.detail += ": the plugin takes the next directory";
  } else {
    check.verdict = Verdict::kFail;
  }
  check.change = "install -d -m 1777 " + check.what.substr(check.what.find('/')) +
                 "; in a container mount the node's directory there";
  return check;
}

}  // namespace

bool SwitchesPluginsOff(const std::string& profiler_plugin) {
  return ::strcasecmp(profiler_plugin.c_str(), "none") == 0;
}

bool HasRights(const struct stat& status, const Writer& writer, mode_t rights) {
  if (writer.uid == 0) return true;
  const unsigned shift = status.st_uid == writer.uid ? 6 : status.st_gid == writer.gid ? 3 : 0;
  return (status.st_mode >> shift & rights) == rights;
}

Check CheckDirectory(const SeenPath& path, const Writer& writer, bool was_chosen) {
  constexpr mode_t kWriteAndPass = 03;
  const std::string text = path.Text();
  Check check{.what = "directory " + text, .detail = {}, .change = {}};
  const OpenedFile directory = Find(path);
  if (!directory.is_open()) return Missing(std::move(check), errno, was_chosen);
  const struct stat& status = directory.status();
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
  if (!HasRights(status, writer, kWriteAndPass))
    return fail(fmt::format("{}, where user {} cannot make files", mode, writer.uid),
                "chmod 1777 " + text);
  const mode_t others = status.st_uid == writer.uid ? S_IWOTH : S_IWGRP | S_IWOTH;
  struct stat parent {};
  const bool is_mount_of_root = status.st_uid == 0 &&
                                ::fstatat(directory.number(), "..", &parent, 0) == 0 &&
                                parent.st_dev != status.st_dev;
  if (!is_mount_of_root && (status.st_mode & others) != 0 && (status.st_mode & S_ISVTX) == 0)
    return fail(mode + ", where users can remove files of others: the plugin does not use it",
                "chmod +t " + text);
  if (status.st_uid >= kFirstUser && status.st_uid != writer.uid) {
    check.verdict = Verdict::kWarn;
    check.change = "chown root " + text + ", unless root has mounted it";
  }
  check.detail = mode;
  CheckFileSystem(text, directory, check);
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
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const plugin::OptionRow& row : plugin::kOptions) names.emplace_back(row.name);
    names.emplace_back("NCCL_EXPORTER_JOB");
    return names;
  }();
  return kNames;
}

namespace {

// A variable that the plugin reads. What it makes of the value is its own parser's word.
void CheckValue(const plugin::OptionRow& row, const std::string& value, Check& check) {
  plugin::Options options;
  if (!value.empty() && !row.store(value.c_str(), options)) {
    check.verdict = Verdict::kFail;
    check.detail = fmt::format("the plugin does not understand '{}': '{}' is in force",
                               Printable(value), row.default_text);
    check.change = row.help;
  } else if (!options.enable) {
    check.verdict = Verdict::kFail;
    check.detail = Printable(value) + ": the plugin is switched off";
    check.change = "remove it";
  }
}

}  // namespace

std::vector<Check> CheckEnvironment(const Environment& environment, bool has_segment) {
  std::vector<Check> checks{CheckPluginVariable(environment, has_segment)};
  for (const auto& [name, value] : environment) {
    const auto row = std::ranges::find_if(
        plugin::kOptions, [&](const plugin::OptionRow& one) { return name == one.name; });
    const bool is_known = row != plugin::kOptions.end();
    const std::string_view likely = is_known ? std::string_view() : LikelyVariable(name);
    if (!is_known && !name.starts_with(kPluginPrefix) && likely.empty()) continue;
    Check check{.what = Printable(name), .detail = Printable(value), .change = {}};
    if (!is_known) {
      check.verdict = Verdict::kWarn;
      check.detail = "the plugin does not read it";
      check.change = likely.empty() ? "remove it" : "did you mean " + std::string(likely) + "?";
    } else {
      CheckValue(*row, value, check);
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace nccl_exporter::exporter
