// SPDX-License-Identifier: Apache-2.0
// Checks of the plugin's library, NCCL, the segment and the daemon.
#include "exporter/cli/doctor/checks.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "exporter/findings/words.h"
#include "exporter/text/utf8.h"
#include "proto/timing_source.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kPackagedPlugin = "/usr/lib/nccl-exporter/libnccl-profiler-exporter.so";
// Where the loader looks without LD_LIBRARY_PATH, on the usual distributions.
constexpr std::array<std::string_view, 8> kLibraryFolders{"/usr/local/lib",
                                                          "/usr/lib/x86_64-linux-gnu",
                                                          "/usr/lib/aarch64-linux-gnu",
                                                          "/lib/x86_64-linux-gnu",
                                                          "/lib/aarch64-linux-gnu",
                                                          "/usr/lib64",
                                                          "/usr/lib",
                                                          "/lib64"};
constexpr int kFirstProfilerRelease = 22300;  // of NCCL with a profiler interface
constexpr int kFirstTimedRelease = 22800;     // with kernel times (docs/nccl-releases.md)

std::string NcclText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
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
  const auto found = environment.find("NCCL_PROFILER_PLUGIN");
  if (found == environment.end() || found->second.empty()) return {std::string(kPackagedPlugin)};
  const std::string& name = found->second;
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> folders;
  if (const auto path = environment.find("LD_LIBRARY_PATH"); path != environment.end()) {
    std::istringstream parts{path->second};
    for (std::string folder; std::getline(parts, folder, ':');)
      if (!folder.empty()) folders.push_back(folder);
  }
  folders.insert(folders.end(), kLibraryFolders.begin(), kLibraryFolders.end());
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    paths.push_back(folder + '/' + name);
    paths.push_back(folder + "/libnccl-profiler-" + name + ".so");
  }
  return paths;
}

GlibcVersion SystemLibc(const std::string& root) {
  for (const std::string_view folder : kLibraryFolders) {
    const ElfFile libc = ReadElfFile(SeenPath(root, std::string(folder) + "/libc.so.6"));
    if (libc.fault.empty() && libc.defines_glibc != GlibcVersion()) return libc.defines_glibc;
  }
  return {};
}

Check CheckPlugin(const SeenPath& path, uint16_t machine, const GlibcVersion& libc,
                  const Writer& reader) {
  constexpr mode_t kRead = 04;
  Check check{
      .verdict = Verdict::kFail, .what = "plugin " + path.Text(), .detail = {}, .change = {}};
  const ElfFile elf = ReadElfFile(path);
  const OpenedFile found = Find(path);
  const struct stat& status = found.status();
  struct statvfs mount {};
  const bool is_seen = found.is_open() && ::fstatvfs(found.number(), &mount) == 0;
  if (is_seen && !HasRights(status, reader, kRead)) {
    check.detail = fmt::format("mode {:o} of user {}: user {} cannot read it",
                               status.st_mode & 07777, status.st_uid, reader.uid);
    check.change = "chmod a+r " + path.Text();
  } else if (is_seen && (mount.f_flag & ST_NOEXEC) != 0) {
    check.detail = "it is on a file system without the right to execute (noexec)";
    check.change = "place it in another directory, such as /usr/lib/nccl-exporter";
  } else if (!elf.fault.empty()) {
    check.detail = elf.fault;
    check.change =
        "install the package, mount the library into the container, or correct "
        "NCCL_PROFILER_PLUGIN";
  } else if (elf.machine != machine) {
    check.detail = fmt::format("it is for {}, the process for {}", MachineText(elf.machine),
                               MachineText(machine));
    check.change = "install the library of the process's architecture";
  } else if (elf.profiler_symbols.empty()) {
    check.detail = "it has no symbol ncclProfiler_vN, which NCCL looks for";
    check.change = "NCCL_PROFILER_PLUGIN=" + std::string(kPackagedPlugin);
  } else if (libc != GlibcVersion() && elf.needs_glibc > libc) {
    check.detail =
        fmt::format("it needs glibc {}, the process has {}", elf.needs_glibc.Text(), libc.Text());
    check.change = "use an image with a newer glibc";
  } else {
    check.verdict = Verdict::kOk;
    check.detail = fmt::format("{}, needs glibc {}, {} to {}", MachineText(elf.machine),
                               elf.needs_glibc.Text(), elf.profiler_symbols.front(),
                               elf.profiler_symbols.back());
  }
  return check;
}

namespace {

// Why a release cannot load what NCCL_PROFILER_PLUGIN names (docs/plugin.md#load-it); empty where
// it can.
std::string_view FaultOfForm(int nccl_version, const std::string& plugin) {
  constexpr int kFirstShortName = 22600, kFirstWithoutPaths = 22700, kFirstWithPathsAgain = 22705;
  const bool is_path = plugin.find('/') != std::string::npos;
  const bool takes_paths =
      nccl_version < kFirstWithoutPaths || nccl_version >= kFirstWithPathsAgain;
  if (is_path && !takes_paths) return "cannot load a plugin by its path";
  const bool is_short = !plugin.empty() && !is_path && !plugin.ends_with(".so");
  if (is_short && nccl_version < kFirstShortName)
    return "loads a plugin only by its path or file name";
  return "";
}

}  // namespace

Check CheckNccl(int nccl_version, const std::string& source, const std::string& plugin) {
  if (nccl_version == 0) {
    return {.verdict = Verdict::kWarn,
            .what = "NCCL",
            .detail = "the release is not known: " + source,
            .change = "run the job until its first collective"};
  }
  Check check{.what = "NCCL " + NcclText(nccl_version), .detail = source, .change = {}};
  if (nccl_version < kFirstProfilerRelease) {
    check.verdict = Verdict::kFail;
    check.detail += ", has no profiler interface";
    check.change = "NCCL 2.23 or later";
  } else if (const std::string_view fault = FaultOfForm(nccl_version, plugin); !fault.empty()) {
    check.verdict = Verdict::kFail;
    check.detail += ", " + std::string(fault);
    check.change =
        "NCCL_PROFILER_PLUGIN=libnccl-profiler-exporter.so, with its folder in LD_LIBRARY_PATH";
  } else if (nccl_version < kFirstTimedRelease) {
    check.verdict = Verdict::kWarn;
    check.detail += ", counts operations without times of the GPU's kernels";
    check.change = "NCCL 2.28 or later; docs/nccl-releases.md has a table";
  }
  return check;
}

// Read piece by piece: a library of 300 MB, which another user may change meanwhile.
int NcclVersionOfLibrary(const SeenPath& path) {
  constexpr off_t kMostBytes = off_t{4} << 30;  // a library with NCCL inside has 1.5 GB
  constexpr std::string_view kText = "NCCL version ";
  constexpr size_t kPieceBytes = 1 << 20, kOverlapBytes = 32;
  std::string fault;
  const OpenedFile file = OpenRegular(path, fault);
  if (!file.is_open() || file.status().st_size > kMostBytes) return 0;
  std::string piece;
  for (off_t read = 0; read < kMostBytes;) {
    piece.erase(0, piece.size() - std::min(piece.size(), kOverlapBytes));
    const size_t kept = piece.size();
    piece.resize(kept + kPieceBytes);
    const ssize_t bytes = ::read(file.number(), piece.data() + kept, kPieceBytes);
    if (bytes <= 0) return 0;
    read += bytes;
    piece.resize(kept + static_cast<size_t>(bytes));
    for (size_t at = piece.find(kText); at != std::string::npos; at = piece.find(kText, at + 1)) {
      int major = 0, minor = 0, patch = 0;
      const std::string text = piece.substr(at + kText.size(), kOverlapBytes - kText.size());
      if (std::sscanf(text.c_str(), "%d.%d.%d", &major, &minor, &patch) == 3 && major == 2)
        return major * 10000 + minor * 100 + patch;
    }
  }
  return 0;
}

std::string MappedFile(const std::string& maps, const std::string& name) {
  std::istringstream lines{maps};
  for (std::string line; std::getline(lines, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    if (path.substr(path.rfind('/') + 1).starts_with(name)) return path;
  }
  return "";
}

std::string LibraryWithNccl(const std::string& maps) {
  const std::string library = MappedFile(maps, "libnccl.so");
  return library.empty() ? MappedFile(maps, "libtorch_cuda.so") : library;
}

uint64_t InnermostPid(const std::string& status) {
  std::istringstream lines{status};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream numbers{line.substr(line.find(':') + 1)};
    uint64_t pid = 0;
    for (uint64_t number = 0; numbers >> number;) pid = number;
    return pid;
  }
  return 0;
}

std::string MappedSegment(const std::string& maps) {
  // proto/README.md: two numbers of 16 digits. The kernel marks a removed file.
  constexpr std::string_view kSuffix = ".seg", kRemoved = " (deleted)";
  constexpr size_t kNameBytes = 16 + 1 + 16 + kSuffix.size();
  std::istringstream lines{maps};
  for (std::string line; std::getline(lines, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    std::string_view path = std::string_view(line).substr(slash);
    if (path.ends_with(kRemoved)) path.remove_suffix(kRemoved.size());
    const bool is_segment =
        path.ends_with(kSuffix) && path.size() - path.rfind('/') - 1 == kNameBytes;
    if (is_segment) return line.substr(slash);
  }
  return "";
}

const collector::ProcessSnapshot* FindSegment(const collector::NodeSnapshot& node,
                                              const std::string& mapped_segment) {
  const std::string name = mapped_segment.substr(mapped_segment.rfind('/') + 1);
  const auto found = std::ranges::find(node.processes, name, &collector::ProcessSnapshot::segment);
  return name.empty() || found == node.processes.end() ? nullptr : &*found;
}

namespace {

// What a job changes for durations.
std::string_view CureOf(TimingReason reason) {
  switch (reason) {
    case TimingReason::kDefault:
    case TimingReason::kConfigured:
      return "";
    case TimingReason::kAllgathervEnabled:
      return "NCCL_ALLGATHERV_ENABLE=0 on all ranks";
    case TimingReason::kRegistrationEnabled:
      return "NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0, if the job can do without";
    default:
      return "docs/kernel-timing.md has the reason's row";
  }
}

Check CheckTimes(TimingReason reason, TimingSource source) {
  const bool is_wanted = reason == TimingReason::kDefault || reason == TimingReason::kConfigured;
  return {.verdict = is_wanted ? Verdict::kOk : Verdict::kWarn,
          .what = "times of operations",
          .detail = fmt::format("{} ({}: {})", NameOf(source), NameOf(reason),
                                RowIn(kTimingReasons, reason).meaning),
          .change = std::string(CureOf(reason))};
}

}  // namespace

std::vector<Check> CheckSegment(const collector::NodeSnapshot& node, uint64_t pid,
                                const std::string& mapped_segment) {
  const std::string name = fmt::format("segment of process {}", pid);
  const auto fail = [&](std::string detail, std::string change) {
    return std::vector<Check>{{.verdict = Verdict::kFail,
                               .what = name,
                               .detail = std::move(detail),
                               .change = std::move(change)}};
  };
  if (mapped_segment.empty())
    return fail("the process has none",
                "what FAIL says above; else run the job with NCCL_DEBUG=INFO and look for "
                "nccl-exporter in its log");
  const collector::ProcessSnapshot* const found = FindSegment(node, mapped_segment);
  if (found == nullptr)
    return fail(fmt::format("it is {} for the process, and in none of the daemon's directories",
                            PrintablePath(mapped_segment)),
                "mount the same directory in both places, or give the daemon --segment.dir");
  if (!found->is_alive)
    return fail(found->segment + " is not locked, as if the process had ended",
                "keep the job from closing descriptors that it did not open");
  if (found->pid != pid)
    return fail(
        fmt::format("{} is of process {}, which forked this one", found->segment, found->pid),
        fmt::format("--pid {}, or what that process is called here", found->pid));
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
  std::vector<Check> checks{
      {.what = name,
       .detail = fmt::format("{}, plugin {}, {}, {} in flight, last progress {}{}", found->segment,
                             Printable(found->plugin_version), CountText(open, "communicator"),
                             CountText(in_flight, "operation"), ClockText(last_progress),
                             found->is_stopped.value_or(false) ? ", stopped" : ""),
       .change = {}}};
  for (const auto& [reason, source] : times) checks.push_back(CheckTimes(reason, source));
  return checks;
}

Check CheckDaemon(const std::string& address, const PlainAnswer& answer) {
  constexpr std::string_view kReady = "Ready\n";  // exporter/web/web_pages.cc
  Check check{.what = "daemon at " + address, .detail = answer.status_line, .change = {}};
  if (!answer.is_connected) {
    check.verdict = Verdict::kFail;
    check.detail = answer.fault;
    check.change = "start it (systemctl start nccl-exporter), or give its --web.listen-address";
  } else if (answer.status == 401) {
    check.detail += ": it asks for a password, so it serves";
  } else if (answer.status == 503) {
    check.verdict = Verdict::kWarn;
    check.detail += ": " + answer.body.substr(0, answer.body.find('\n'));
    check.change = "wait if it has just started; else do what it says";
  } else if (answer.status != 0 && answer.body != kReady) {
    check.verdict = Verdict::kFail;
    check.detail += ", but not of nccl-exporter: another program has the port";
    check.change = fmt::format(
        "ss -ltnp 'sport = :{}' shows which; end it, or give the daemon another "
        "--web.listen-address",
        address.substr(address.rfind(':') + 1));
  } else if (answer.status == 0) {
    check.verdict = Verdict::kWarn;
    check.detail = "no answer to GET /-/ready";
    check.change = fmt::format(
        "nothing if it serves by TLS; else look at its log, and with ss -ltnp 'sport = :{}' at who "
        "has the port",
        address.substr(address.rfind(':') + 1));
  }
  return check;
}

}  // namespace nccl_exporter::exporter
