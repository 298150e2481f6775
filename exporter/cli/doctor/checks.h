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
#include "exporter/cli/client/plain_get.h"
#include "exporter/cli/doctor/elf_file.h"
#include "exporter/cli/doctor/seen_path.h"

namespace nccl_exporter::exporter {

// kFail: the process will not appear, and the exit code is 1. kWarn: it may, or with less.
enum class Verdict : uint8_t { kOk, kWarn, kFail };

// One line of the answer. Texts of other processes in it are escaped by CheckLine().
struct Check {
  Verdict verdict = Verdict::kOk;
  std::string what;    // the thing: a path, a variable, a release
  std::string detail;  // what was seen
  std::string change;  // empty: nothing to change
};

// "FAIL what: detail; change: ...", without line feed or control characters.
std::string CheckLine(const Check& check);

// Who writes segments and loads the plugin. Supplementary groups are not known: a directory that
// only they may write to is reported as one that the user cannot use.
struct Writer {
  uid_t uid = 0;
  gid_t gid = 0;
};

// Whether the mode gives a user these of the bits rwx; root has all of them.
bool HasRights(const struct stat& status, const Writer& writer, mode_t rights);

// Free bytes that a segment and its neighbours need: some MB each.
inline constexpr uint64_t kLeastFreeBytes = 16 << 20;

// Whether the writer may make segments in it, as the plugin decides (Segment::TrustsDirectory in
// plugin/segment/segment.cc, repeated here without its mount check). `was_chosen`: by
// NCCL_EXPORTER_DIR, so that there is no other, and a missing directory is a failure. On a file
// system other than tmpfs it warns: each counter that grows would be written to a disk.
Check CheckDirectory(const SeenPath& path, const Writer& writer, bool was_chosen);

using Environment = std::map<std::string, std::string>;
// Of the text of /proc/PID/environ (proc(5)): the environment at the start of the process. What the
// program has set since is not in it. Of two variables of one name the first counts, as for getenv.
Environment ParseEnvironment(const std::string& text);

// The variables of NCCL and of the plugin. `has_segment`: the plugin runs, whatever they say.
std::vector<Check> CheckEnvironment(const Environment& environment, bool has_segment);

// The names that the plugin reads (docs/plugin.md).
const std::vector<std::string_view>& PluginVariables();

// The path that NCCL makes of NCCL_DEBUG_FILE (2.30.7 src/debug.cc ncclDebugInit): %h is the host's
// name up to the first dot, %p the PID in the process's own namespace, %% is %.
std::string NcclLogPath(const std::string& pattern, const std::string& host, uint64_t pid);

// The last line of the plugin in the file at `path`, called `name` in the text. NCCL writes the
// plugin's lines at the level NCCL_DEBUG of the environment; not at all without it. Any kind of
// file is accepted, and it may change meanwhile: nothing but a regular file is read, at most its
// first 256 MiB.
Check CheckPluginLog(const Environment& environment, const SeenPath& path, const std::string& name);

// Whether NCCL loads no profiler plugin with this value of NCCL_PROFILER_PLUGIN.
bool SwitchesPluginsOff(const std::string& profiler_plugin);

// Where NCCL finds the plugin: the paths that it tries, most likely first (2.30.7
// src/plugin/plugin_open.cc), as the process has them. Never empty.
std::vector<std::string> PluginPaths(const Environment& environment);

// The C library of the system below `root`, by its file: a release of this program runs with one of
// its own. 0.0: none is found.
GlibcVersion SystemLibc(const std::string& root);

// The library at `path`, for a process of that machine (EM_ number of elf.h) with that C library
// (0.0: not known, and not compared), which `reader` has to read. Fails if there is none, if it is
// of another machine or needs a newer C library, and if it has no profiler. Loads nothing.
Check CheckPlugin(const SeenPath& path, uint16_t machine, const GlibcVersion& libc,
                  const Writer& reader);

// NCCL's release by its version number, 22809 for 2.28.9; 0: not known. Fails below 2.23, which has
// no profiler interface; warns below 2.28, which times no kernels without being asked to. `source`
// is where the number comes from, for the text. `plugin` is the value of NCCL_PROFILER_PLUGIN,
// which not every release understands.
Check CheckNccl(int nccl_version, const std::string& source, const std::string& plugin);
// The version in NCCL's library, by the text that it logs ("NCCL version 2.28.9"); 0 if there is
// none, or if `path` is no regular file. Reads the whole file, 300 MB, in the worst case, and none
// above 4 GiB.
int NcclVersionOfLibrary(const SeenPath& path);
// The path of the first mapped file with that name; empty if there is none. `maps` is the text of
// /proc/PID/maps.
std::string MappedFile(const std::string& maps, const std::string& name);
// The mapped library that has NCCL: some builds of PyTorch have it inside. Empty if there is none.
std::string LibraryWithNccl(const std::string& maps);

// The PID in the process's own namespace, which its segment has, by the text of /proc/PID/status;
// 0 if it is not known.
uint64_t InnermostPid(const std::string& status);

// The path of the first mapped segment, as the process sees it; empty if there is none.
std::string MappedSegment(const std::string& maps);
// The segment of that path in the snapshot; null if there is none.
const collector::ProcessSnapshot* FindSegment(const collector::NodeSnapshot& node,
                                              const std::string& mapped_segment);

// Its segment and what that says of communicators and times. `pid` is the innermost one, so two
// containers may have it: what is mapped decides. Never empty.
std::vector<Check> CheckSegment(const collector::NodeSnapshot& node, uint64_t pid,
                                const std::string& mapped_segment);

// What a daemon answered to GET /-/ready, or why there is no answer. A refusal for lack of a
// password counts as an answer.
Check CheckDaemon(const std::string& address, const PlainAnswer& answer);

}  // namespace nccl_exporter::exporter
