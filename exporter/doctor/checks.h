// SPDX-License-Identifier: Apache-2.0
// Checks of `nccl-exporter doctor`. Each takes what was seen and says what to change, so that tests
// can hand in anything; they read only the paths that they are given. For any thread.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/doctor/elf_file.h"

namespace nccl_exporter::exporter {

enum class Verdict : uint8_t { kOk, kWarn, kFail };

struct Check {
  Verdict verdict = Verdict::kOk;
  std::string what;
  std::string detail;
  std::string change;  // empty: nothing to change
};

// "FAIL what: detail; change: ...", without line feed or control characters.
std::string CheckLine(const Check& check);

// Who writes segments and loads the plugin.
struct Writer {
  uid_t uid = 0;
  gid_t gid = 0;
};

// Whether the mode gives a user these of the bits rwx; root has all of them.
bool HasRights(const struct stat& status, const Writer& writer, mode_t rights);

// Free bytes that a segment and its neighbours need: some MB each.
inline constexpr uint64_t kLeastFreeBytes = 16 << 20;

// Whether the writer may make segments in it, as the plugin decides. `was_chosen`: by
// NCCL_EXPORTER_DIR, so that there is no other.
Check CheckDirectory(const std::string& path, const Writer& writer, bool was_chosen);

using Environment = std::map<std::string, std::string>;
// Of the text of /proc/PID/environ.
Environment ParseEnvironment(const std::string& text);

// The variables of NCCL and of the plugin. `has_segment`: the plugin runs, whatever they say.
std::vector<Check> CheckEnvironment(const Environment& environment, bool has_segment);

// The names that the plugin reads (docs/plugin.md).
const std::vector<std::string_view>& PluginVariables();

// Where NCCL finds the plugin: the paths that it tries, most likely first. `root` is in front of
// absolute ones, as /proc/PID/root.
std::vector<std::string> PluginPaths(const Environment& environment, const std::string& root);

// The library at `path`, for a process of that machine with that C library (0.0: not known), which
// `reader` has to read.
Check CheckPlugin(const std::string& path, uint16_t machine, const GlibcVersion& libc,
                  const Writer& reader);

// NCCL's release by its version number, 22809 for 2.28.9; 0: not known. `plugin` is the value of
// NCCL_PROFILER_PLUGIN, which not every release understands.
Check CheckNccl(int nccl_version, const std::string& source, const std::string& plugin);
// The version in NCCL's library, by the text that it logs; 0 if there is none.
int NcclVersionOfLibrary(const std::string& path);
// The path of the first mapped file with that name; empty if there is none. `maps` is the text of
// /proc/PID/maps.
std::string MappedFile(const std::string& maps, const std::string& name);

// The PID in the process's own namespace, which its segment has, by the text of /proc/PID/status;
// 0 if it is not known.
uint64_t InnermostPid(const std::string& status);

// The path of the first mapped segment, as the process sees it; empty if there is none.
std::string MappedSegment(const std::string& maps);
// The segment of that path in the snapshot; null if there is none.
const collector::ProcessSnapshot* FindSegment(const collector::NodeSnapshot& node,
                                              const std::string& mapped_segment);

// Its segment and what that says of communicators and times. `pid` is the innermost one.
std::vector<Check> CheckSegment(const collector::NodeSnapshot& node, uint64_t pid,
                                const std::string& mapped_segment);

// What a daemon answered to GET /-/ready, or why there is no answer.
Check CheckDaemon(const std::string& address, const std::string& answer, const std::string& fault);

}  // namespace nccl_exporter::exporter
