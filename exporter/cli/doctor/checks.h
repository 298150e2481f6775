// SPDX-License-Identifier: Apache-2.0
// Checks of `nccl-exporter doctor`. Examine() makes all of them. The others take what was seen, so
// that tests can hand in anything, and read only the paths that they are given. For any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/cli/client/plain_get.h"
#include "exporter/cli/doctor/library_file.h"
#include "exporter/cli/doctor/seen_path.h"

namespace nccl_exporter::exporter {

// kFail: the process will not appear, and the exit code is 1. kWarn: it may, or with less.
enum class Verdict : uint8_t { kOk, kWarn, kFail };

// One line of the answer. Texts of other processes in it are escaped by CheckLine().
struct Check {
  std::string what;         // the thing: a path, a variable, a release
  std::string detail = {};  // the fact
  std::string change = {};  // empty: nothing to change
  Verdict verdict = Verdict::kOk;

  Check Holds(std::string seen) const { return {what, std::move(seen)}; }
  Check Warns(std::string seen, std::string cure) const {
    return {what, std::move(seen), std::move(cure), Verdict::kWarn};
  }
  Check Fails(std::string seen, std::string cure) const {
    return {what, std::move(seen), std::move(cure), Verdict::kFail};
  }
};

// "FAIL what: detail; change: ...", without line feed or control characters.
std::string CheckLine(const Check& check);

// The user that writes segments and loads the plugin. Supplementary groups are not known: a
// directory that only they may write to is reported as one that the user cannot use.
struct Writer {
  uid_t uid = 0;
  gid_t gid = 0;

  // Whether the mode gives the user these of the bits rwx; root has all of them.
  bool Has(mode_t rights, const struct stat& status) const;
};

// Whether the writer may make segments in it, as Segment::TrustsDirectory of the plugin decides.
// `was_chosen`: by NCCL_EXPORTER_DIR, so that there is no other.
Check CheckDirectory(const SeenPath& path, const Writer& writer, bool was_chosen);

using Environment = std::map<std::string, std::string>;
// Reads the text of /proc/PID/environ (proc(5)): the environment at the start of the process. The
// first of two variables of one name counts, as for getenv.
Environment ParseEnvironment(const std::string& text);
// Empty if the variable is not there.
std::string ValueIn(const Environment& environment, const std::string& variable);

// The variables of NCCL and of the plugin. `has_segment`: the plugin runs, whatever they say.
std::vector<Check> CheckEnvironment(const Environment& environment, bool has_segment);

// Whether NCCL loads no profiler plugin with this value of NCCL_PROFILER_PLUGIN.
bool SwitchesPluginsOff(const std::string& profiler_plugin);

// Where NCCL finds the plugin: the paths that it tries, most likely first (2.30.7
// src/plugin/plugin_open.cc), as the process has them. Never empty.
std::vector<std::string> PluginPaths(const Environment& environment);

// The library at `path`, for a process of that machine (EM_ number of elf.h) with that C library
// (0.0: not known, and not compared), which `reader` has to read. Loads nothing.
Check CheckPlugin(const SeenPath& path, uint16_t machine, const GlibcVersion& libc,
                  const Writer& reader);

// NCCL's release by its version number, 22809 for 2.28.9; 0: not known. `source` says where that is
// from. `plugin` is the value of NCCL_PROFILER_PLUGIN, which not every release understands.
Check CheckNccl(int nccl_version, const std::string& source, const std::string& plugin);

// The text of /proc/PID/maps gives paths as the process sees them, empty if there is none: of the
// first mapped file whose name begins so, of the library that has NCCL (some builds of PyTorch have
// it inside of theirs), and of the segment.
std::string MappedFile(const std::string& maps, const std::string& name);
std::string LibraryWithNccl(const std::string& maps);
std::string MappedSegment(const std::string& maps);

// The PID in the process's own namespace by the text of /proc/PID/status; 0: not known.
uint64_t InnermostPid(const std::string& status);

// Null if the snapshot has no such segment.
const collector::ProcessSnapshot* FindSegment(const collector::NodeSnapshot& node,
                                              const std::string& mapped_segment);

// Its segment and what that says of communicators and times. `pid` is the innermost one, so two
// containers may have it: what is mapped decides. Never empty.
std::vector<Check> CheckSegment(const collector::NodeSnapshot& node, uint64_t pid,
                                const std::string& mapped_segment);

// The answer of a daemon to GET /-/ready, or why there is none. A refusal for lack of a password
// counts as an answer.
Check CheckDaemon(const std::string& address, const PlainAnswer& answer);

// Values of the command line. Directories may have a pattern for private ones (-*), as those of
// the daemon; the one of the process's user is checked.
struct DoctorInput {
  std::vector<std::string> segment_dirs;
  std::vector<std::string> listen_addresses;
  uint64_t pid = 0;            // 0: no process
  std::string proc = "/proc";  // where processes are
};

// In the order in which a segment comes to the daemon: directories, plugin, NCCL, environment,
// segment, daemon. `node` is of the same directories. Waits up to two seconds for a daemon.
std::vector<Check> Examine(const DoctorInput& input, const collector::NodeSnapshot& node);

}  // namespace nccl_exporter::exporter
