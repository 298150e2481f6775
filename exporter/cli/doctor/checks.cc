// SPDX-License-Identifier: Apache-2.0
// Checks of the plugin's library, NCCL, the segment and the daemon.
#include "exporter/cli/doctor/checks.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <sstream>

#include "exporter/findings/words.h"
#include "exporter/text/utf8.h"
#include "exporter/text/version.h"
#include "proto/timing_source.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kPackagedPlugin = "/usr/lib/nccl-exporter/libnccl-profiler-exporter.so";
// Where the loader looks without LD_LIBRARY_PATH, on the usual distributions.
constexpr const char* kLibraryFolders =
    "/usr/local/lib:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib/x86_64-linux-gnu:"
    "/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib:/lib64";

// The path of the first mapped file whose name fulfils the condition.
template <typename Condition>
std::string FirstMapped(const std::string& maps, Condition condition) {
  std::istringstream lines{maps};
  for (std::string line; std::getline(lines, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    if (condition(std::string_view(path).substr(path.rfind('/') + 1))) return path;
  }
  return "";
}

// "x86-64", "arm64", or the number.
std::string MachineText(uint16_t machine) {
  if (machine == EM_X86_64) return "x86-64";
  return machine == EM_AARCH64 ? "arm64" : "machine " + std::to_string(machine);
}

Check CheckTimes(TimingReason reason, TimingSource source) {
  const Check times{.what = "times of operations"};
  const std::string detail = fmt::format("{} ({}: {})", NameOf(source), NameOf(reason),
                                         RowIn(kTimingReasons, reason).meaning);
  if (reason == TimingReason::kDefault || reason == TimingReason::kConfigured)
    return times.Holds(detail);
  if (reason == TimingReason::kAllgathervEnabled)
    return times.Warns(detail, "NCCL_ALLGATHERV_ENABLE=0 on all ranks");
  if (reason == TimingReason::kRegistrationEnabled)
    return times.Warns(
        detail, "NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0, if the job can do without");
  return times.Warns(detail, "docs/kernel-timing.md has the reason's row");
}

}  // namespace

std::string CheckLine(const Check& check) {
  constexpr std::array<std::string_view, 3> kVerdicts{"ok  ", "warn", "FAIL"};
  std::string line = fmt::format("{} {}: {}", kVerdicts[static_cast<size_t>(check.verdict)],
                                 check.what, check.detail);
  if (!check.change.empty()) line += "; change: " + check.change;
  return ValidUtf8(line, std::string::npos, "?");
}

std::vector<std::string> PluginPaths(const Environment& environment) {
  const std::string name = ValueIn(environment, "NCCL_PROFILER_PLUGIN");
  if (name.empty()) return {std::string(kPackagedPlugin)};
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> paths;
  std::istringstream folders{ValueIn(environment, "LD_LIBRARY_PATH") + ':' + kLibraryFolders};
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;
    paths.push_back(folder + '/' + name);
    paths.push_back(folder + "/libnccl-profiler-" + name + ".so");
  }
  return paths;
}

Check CheckPlugin(const SeenPath& path, uint16_t machine, const GlibcVersion& libc,
                  const Writer& reader) {
  constexpr mode_t kRead = 04;
  const auto text = [](const GlibcVersion& version) {
    return fmt::format("{}.{}", version.first, version.second);
  };
  const Check plugin{.what = "plugin " + path.Text()};
  const OpenedFile found = Find(path);
  struct statvfs mount {};
  if (found.is_open() && !reader.Has(kRead, found.status()))
    return plugin.Fails(
        fmt::format("mode {:o} of user {}: user {} cannot read it", found.status().st_mode & 07777,
                    found.status().st_uid, reader.uid),
        "chmod a+r " + path.Text());
  if (found.is_open() && ::fstatvfs(found.number(), &mount) == 0 && (mount.f_flag & ST_NOEXEC) != 0)
    return plugin.Fails("it is on a file system without the right to execute (noexec)",
                        "place it in another directory, such as /usr/lib/nccl-exporter");
  const LibraryFile library = ReadLibrary(path);
  if (!library.fault.empty())
    return plugin.Fails(library.fault,
                        "install the package, mount the library into the container, or correct "
                        "NCCL_PROFILER_PLUGIN");
  if (library.machine != machine)
    return plugin.Fails(fmt::format("it is for {}, the process for {}",
                                    MachineText(library.machine), MachineText(machine)),
                        "install the library of the process's architecture");
  if (library.profilers.empty())
    return plugin.Fails("it has no symbol ncclProfiler_vN, which NCCL looks for",
                        "NCCL_PROFILER_PLUGIN=" + std::string(kPackagedPlugin));
  if (libc != GlibcVersion() && library.glibc > libc)
    return plugin.Fails(
        fmt::format("it needs glibc {}, the process has {}", text(library.glibc), text(libc)),
        "use an image with a newer glibc");
  return plugin.Holds(fmt::format("{}, needs glibc {}, ncclProfiler_v{} to ncclProfiler_v{}",
                                  MachineText(library.machine), text(library.glibc),
                                  *library.profilers.begin(), *library.profilers.rbegin()));
}

Check CheckNccl(int nccl_version, const std::string& source, const std::string& plugin) {
  constexpr int kFirstProfilerRelease = 22300;  // of NCCL with a profiler interface
  constexpr int kFirstTimedRelease = 22800;     // with kernel times (docs/nccl-releases.md)
  constexpr int kFirstShortName = 22600, kFirstWithoutPaths = 22700, kFirstWithPathsAgain = 22705;
  constexpr const char* kLoadable =
      "NCCL_PROFILER_PLUGIN=libnccl-profiler-exporter.so, with its folder in LD_LIBRARY_PATH";
  if (nccl_version == 0)
    return Check{.what = "NCCL"}.Warns("the release is not known: " + source,
                                       "run the job until its first collective");
  const Check nccl{.what = "NCCL " + NcclVersionText(nccl_version)};
  if (nccl_version < kFirstProfilerRelease)
    return nccl.Fails(source + ", has no profiler interface", "NCCL 2.23 or later");
  const bool is_path = plugin.find('/') != std::string::npos;
  if (is_path && nccl_version >= kFirstWithoutPaths && nccl_version < kFirstWithPathsAgain)
    return nccl.Fails(source + ", cannot load a plugin by its path", kLoadable);
  const bool is_short = !plugin.empty() && !is_path && !plugin.ends_with(".so");
  if (is_short && nccl_version < kFirstShortName)
    return nccl.Fails(source + ", loads a plugin only by its path or file name", kLoadable);
  if (nccl_version < kFirstTimedRelease)
    return nccl.Warns(source + ", counts operations without times of the GPU's kernels",
                      "NCCL 2.28 or later; docs/nccl-releases.md has a table");
  return nccl.Holds(source);
}

std::string MappedFile(const std::string& maps, const std::string& name) {
  return FirstMapped(maps, [&](std::string_view file) { return file.starts_with(name); });
}

std::string LibraryWithNccl(const std::string& maps) {
  const std::string library = MappedFile(maps, "libnccl.so");
  return library.empty() ? MappedFile(maps, "libtorch_cuda.so") : library;
}

std::string MappedSegment(const std::string& maps) {
  // proto/README.md: two numbers of 16 digits. The kernel marks a removed file.
  constexpr std::string_view kSuffix = ".seg", kRemoved = " (deleted)";
  constexpr size_t kNameBytes = 16 + 1 + 16 + kSuffix.size();
  return FirstMapped(maps, [&](std::string_view file) {
    if (file.ends_with(kRemoved)) file.remove_suffix(kRemoved.size());
    return file.ends_with(kSuffix) && file.size() == kNameBytes;
  });
}

uint64_t InnermostPid(const std::string& status) {
  std::istringstream lines{status};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("NSpid:"))
      return std::strtoull(line.c_str() + line.find_last_of(":\t ") + 1, nullptr, 10);
  }
  return 0;
}

const collector::ProcessSnapshot* FindSegment(const collector::NodeSnapshot& node,
                                              const std::string& mapped_segment) {
  const std::string name = mapped_segment.substr(mapped_segment.rfind('/') + 1);
  const auto found = std::ranges::find(node.processes, name, &collector::ProcessSnapshot::segment);
  return name.empty() || found == node.processes.end() ? nullptr : &*found;
}

std::vector<Check> CheckSegment(const collector::NodeSnapshot& node, uint64_t pid,
                                const std::string& mapped_segment) {
  const Check segment{.what = fmt::format("segment of process {}", pid)};
  if (mapped_segment.empty())
    return {segment.Fails("the process has none",
                          "what FAIL says above; else run the job with NCCL_DEBUG=INFO and look "
                          "for nccl-exporter in its log")};
  const collector::ProcessSnapshot* const found = FindSegment(node, mapped_segment);
  if (found == nullptr)
    return {segment.Fails(
        fmt::format("it is {} for the process, and in none of the daemon's directories",
                    PrintablePath(mapped_segment)),
        "mount the same directory in both places, or give the daemon --segment.dir")};
  if (!found->is_alive)
    return {segment.Fails(found->segment + " is not locked, as if the process had ended",
                          "keep the job from closing descriptors that it did not open")};
  if (found->pid != pid)
    return {segment.Fails(
        fmt::format("{} is of process {}, which forked this one", found->segment, found->pid),
        fmt::format("--pid {}, or what that process is called here", found->pid))};
  size_t in_flight = 0, open = 0;
  int64_t last_progress = 0;
  std::set<std::pair<TimingReason, TimingSource>> times;
  for (const collector::CommunicatorSnapshot& communicator : found->communicators) {
    if (communicator.is_closed || !communicator.has_identity) continue;
    ++open;
    in_flight += communicator.in_flight.size();
    last_progress = std::max(last_progress, communicator.last_progress_realtime_ns);
    times.emplace(communicator.timing_reason, communicator.timing_source);
  }
  std::vector<Check> checks{segment.Holds(
      fmt::format("{}, plugin {}, {}, {} in flight, last progress {}{}", found->segment,
                  Printable(found->plugin_version), CountText(open, "communicator"),
                  CountText(in_flight, "operation"), ClockText(last_progress),
                  found->is_stopped.value_or(false) ? ", stopped" : ""))};
  for (const auto& [reason, source] : times) checks.push_back(CheckTimes(reason, source));
  return checks;
}

Check CheckDaemon(const std::string& address, const PlainAnswer& answer) {
  constexpr std::string_view kReady = "Ready\n";  // exporter/web/web_pages.cc
  const Check daemon{.what = "daemon at " + address};
  const std::string& status = answer.status_line;
  const std::string port = address.substr(address.rfind(':') + 1);
  if (!answer.is_connected)
    return daemon.Fails(
        answer.fault, "start it (systemctl start nccl-exporter), or give its --web.listen-address");
  if (answer.status == 401) return daemon.Holds(status + ": it asks for a password, so it serves");
  if (answer.status == 503)
    return daemon.Warns(status + ": " + answer.body.substr(0, answer.body.find('\n')),
                        "wait if it has just started; else do what it says");
  if (answer.status == 0)
    return daemon.Warns(
        "no answer to GET /-/ready",
        fmt::format("nothing if it serves by TLS; else look at its log, and with ss -ltnp 'sport = "
                    ":{}' at who has the port",
                    port));
  if (answer.body == kReady) return daemon.Holds(status);
  return daemon.Fails(
      status + ", but not of nccl-exporter: another program has the port",
      fmt::format("ss -ltnp 'sport = :{}' shows which; end it, or give the daemon another "
                  "--web.listen-address",
                  port));
}

}  // namespace nccl_exporter::exporter
