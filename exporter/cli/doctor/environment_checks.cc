// SPDX-License-Identifier: Apache-2.0
// Checks of directories and of a process's environment.
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "exporter/cli/doctor/checks.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/systems_tmpfs.h"
#include "exporter/text/nearest_name.h"
#include "plugin/options.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kNcclPrefix = "NCCL_", kPluginPrefix = "NCCL_EXPORTER_";
constexpr std::string_view kPluginVariable = "NCCL_PROFILER_PLUGIN";
constexpr const char* kSetPath = "set it to the path of libnccl-profiler-exporter.so on all ranks";

// The needs of a segment of the file system, as seen through the mount of the directory, which has
// this mode.
Check CheckFileSystem(const Check& check, const std::string& mode, const std::string& path,
                      const OpenedFile& directory) {
  struct statfs status {};
  if (::fstatfs(directory.number(), &status) != 0)
    return check.Holds(mode + ", statfs: " + std::strerror(errno));
  constexpr uint64_t kLeastFreeBytes = 16 << 20;  // for a segment and its neighbours
  const bool is_in_memory = status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
  const uint64_t free_bytes =
      static_cast<uint64_t>(status.f_bavail) * static_cast<uint64_t>(status.f_bsize);
  const std::string seen = fmt::format(
      "{}, {}, {} MiB free", mode,
      is_in_memory ? "tmpfs" : fmt::format("file system {:#x}", status.f_type), free_bytes >> 20);
  if ((status.f_flags & ST_RDONLY) != 0)
    return check.Fails(seen + ", mounted read-only",
                       "mount it writable (in a container: without :ro or readOnly)");
  if (free_bytes < kLeastFreeBytes)
    return check.Fails(seen, fmt::format("make {} MiB of room", kLeastFreeBytes >> 20));
  if (status.f_files != 0 && status.f_ffree == 0)
    return check.Fails(seen + ", no free inode",
                       "remove files, or mount it with more inodes (nr_inodes)");
  if (IsOnSystemsTmpfs(path, directory.status().st_dev))
    return check.Warns(
        seen + ", which the system needs: a user who fills it stops the node",
        "mount a tmpfs there: systemctl start 'run-nccl\\x2dexporter.mount' while no job runs");
  if (!is_in_memory)
    return check.Warns(seen, "use a tmpfs: counters on a disk or a network cost writes");
  return check.Holds(seen);
}

// The variable of the plugin that a name may be a slip of. Behind the plugin's own prefix much may
// differ; elsewhere only what a finger does, since other programs have variables as well.
std::string LikelyVariable(std::string_view name) {
  constexpr size_t kMostSlips = 2;
  std::vector<std::string_view> ends{"JOB"};
  for (const plugin::OptionRow& row : plugin::kOptions)
    ends.push_back(std::string_view(row.name).substr(kPluginPrefix.size()));
  if (name.starts_with(kPluginPrefix)) {
    const std::string_view likely = LikelyName(name.substr(kPluginPrefix.size()), ends);
    return likely.empty() ? "" : fmt::format("{}{}", kPluginPrefix, likely);
  }
  for (const std::string_view end : ends) {
    std::string variable = fmt::format("{}{}", kPluginPrefix, end);
    if (EditDistance(name, variable) <= kMostSlips) return variable;
  }
  return "";
}

Check CheckPluginVariable(const Environment& environment, bool has_segment) {
  const Check check{.what = std::string(kPluginVariable)};
  if (const auto plugin = environment.find(check.what); plugin != environment.end()) {
    const std::string value = Printable(plugin->second);
    return SwitchesPluginsOff(plugin->second)
               ? check.Fails(value + ": NCCL loads no profiler plugin", kSetPath)
               : check.Holds(value);
  }
  if (has_segment)
    return check.Holds("it was set after the start of the process, or in a nccl.conf");
  std::string cure = kSetPath;
  const std::array<std::string_view, 1> wanted{kPluginVariable.substr(kNcclPrefix.size())};
  for (const auto& [name, value] : environment) {
    if (name.starts_with(kNcclPrefix) &&
        !LikelyName(std::string_view(name).substr(kNcclPrefix.size()), wanted).empty())
      cure = "rename " + Printable(name);
  }
  return check.Fails("it was not set when the process started", cure);
}

// A variable that the plugin reads, with the value that its own parser makes of it.
Check CheckValue(const Check& check, const plugin::OptionRow& row, const std::string& value) {
  plugin::Options options;
  if (!value.empty() && !row.store(value.c_str(), options))
    return check.Fails(fmt::format("the plugin does not understand '{}': '{}' is in force",
                                   Printable(value), row.default_text),
                       row.help);
  return options.enable
             ? check.Holds(Printable(value))
             : check.Fails(Printable(value) + ": the plugin is switched off", "remove it");
}

}  // namespace

bool SwitchesPluginsOff(const std::string& profiler_plugin) {
  return ::strcasecmp(profiler_plugin.c_str(), "none") == 0;
}

bool Writer::Has(mode_t rights, const struct stat& status) const {
  const unsigned shift = status.st_uid == uid ? 6 : status.st_gid == gid ? 3 : 0;
  return uid == 0 || (status.st_mode >> shift & rights) == rights;
}

Check CheckDirectory(const SeenPath& path, const Writer& writer, bool was_chosen) {
  constexpr mode_t kWriteAndPass = 03;
  constexpr uid_t kFirstUser = 1000;  // for the plugin, accounts below are of the system
  const std::string text = path.Text();
  const Check check{.what = "directory " + text};
  const OpenedFile directory = Find(path);
  if (!directory.is_open()) {
    const bool has_next = errno == ENOENT && !was_chosen;
    const std::string reason = std::strerror(errno);
    const std::string cure =
        "install -d -m 1777 " + text + "; in a container mount the node's directory there";
    return has_next ? check.Warns(reason + ": the plugin takes the next directory", cure)
                    : check.Fails(reason, cure);
  }
  const struct stat& status = directory.status();
  if (!S_ISDIR(status.st_mode))
    return check.Fails("it is no directory",
                       "remove it and make a directory, or give another --segment.dir");
  const std::string mode =
      fmt::format("mode {:o} of user {}", status.st_mode & 07777, status.st_uid);
  if (!writer.Has(kWriteAndPass, status))
    return check.Fails(fmt::format("{}, where user {} cannot make files", mode, writer.uid),
                       "chmod 1777 " + text);
  const mode_t others = status.st_uid == writer.uid ? S_IWOTH : S_IWGRP | S_IWOTH;
  struct stat parent {};
  const bool is_mount_of_root = status.st_uid == 0 &&
                                ::fstatat(directory.number(), "..", &parent, 0) == 0 &&
                                parent.st_dev != status.st_dev;
  if (!is_mount_of_root && (status.st_mode & others) != 0 && (status.st_mode & S_ISVTX) == 0)
    return check.Fails(
        mode + ", where users can remove files of others: the plugin does not use it",
        "chmod +t " + text);
  Check found = CheckFileSystem(check, mode, text, directory);
  if (found.verdict == Verdict::kOk && status.st_uid >= kFirstUser && status.st_uid != writer.uid)
    found = check.Warns(found.detail, "chown root " + text + ", unless root has mounted it");
  return found;
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

std::string ValueIn(const Environment& environment, const std::string& variable) {
  const auto found = environment.find(variable);
  return found == environment.end() ? "" : found->second;
}

std::vector<Check> CheckEnvironment(const Environment& environment, bool has_segment) {
  std::vector<Check> checks{CheckPluginVariable(environment, has_segment)};
  for (const auto& [name, value] : environment) {
    const Check check{.what = Printable(name)};
    const auto row = std::ranges::find_if(
        plugin::kOptions, [&](const plugin::OptionRow& one) { return name == one.name; });
    if (row != plugin::kOptions.end()) {
      checks.push_back(CheckValue(check, *row, value));
    } else if (const std::string likely = LikelyVariable(name); likely == name) {
      checks.push_back(check.Holds(Printable(value)));  // one of the labels, which any value is
    } else if (!likely.empty() || name.starts_with(kPluginPrefix)) {
      checks.push_back(check.Warns("the plugin does not read it",
                                   likely.empty() ? "remove it" : "did you mean " + likely + "?"));
    }
  }
  return checks;
}

}  // namespace nccl_exporter::exporter
