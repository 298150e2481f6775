// SPDX-License-Identifier: Apache-2.0
// Checks of the plugin's library, NCCL, the segment and the daemon.
#include "exporter/doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "exporter/findings/words.h"
#include "proto/timing_source.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kPackagedPlugin = "/usr/lib/nccl-exporter/libnccl-profiler-exporter.so";
// Where the loader looks without LD_LIBRARY_PATH, on the usual distributions.
constexpr std::array<std::string_view, 6> kLibraryFolders{"/usr/local/lib",
                                                          "/usr/lib/x86_64-linux-gnu",
                                                          "/usr/lib/aarch64-linux-gnu",
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
  for (char& c : line) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return line;
}

std::vector<std::string> PluginPaths(const Environment& environment, const std::string& root) {
  const auto found = environment.find("NCCL_PROFILER_PLUGIN");
  if (found == environment.end() || found->second.empty())
    return {root + std::string(kPackagedPlugin)};
  const std::string& name = found->second;
  if (name.find('/') != std::string::npos) return {root + name};
  std::vector<std::string> folders;
  if (const auto path = environment.find("LD_LIBRARY_PATH"); path != environment.end()) {
    std::istringstream parts{path->second};
    for (std::string folder; std::getline(parts, folder, ':');)
      if (!folder.empty()) folders.push_back(folder);
  }
  folders.insert(folders.end(), kLibraryFolders.begin(), kLibraryFolders.end());
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    paths.push_back(root + folder + '/' + name);
    paths.push_back(root + folder + "/libnccl-profiler-" + name + ".so");
  }
  return paths;
}

Check CheckPlugin(const std::string& path, uint16_t machine, const GlibcVersion& libc) {
  Check check{.verdict = Verdict::kFail, .what = "plugin " + path, .detail = {}, .change = {}};
  const ElfFile elf = ReadElfFile(path);
  if (!elf.fault.empty()) {
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
    check.change =
        "use an image with a newer glibc, or a plugin that is built against an older one";
  } else {
    check.verdict = Verdict::kOk;
    check.detail = fmt::format("{}, needs glibc {}, {} to {}", MachineText(elf.machine),
                               elf.needs_glibc.Text(), elf.profiler_symbols.front(),
                               elf.profiler_symbols.back());
  }
  return check;
}

Check CheckNccl(int nccl_version, const std::string& source) {
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
  } else if (nccl_version < kFirstTimedRelease) {
    check.verdict = Verdict::kWarn;
    check.detail += ", counts operations without times of the GPU's kernels";
    check.change = "NCCL 2.28 or later; docs/nccl-releases.md has a table";
  }
  return check;
}

// Read piece by piece: a library of 300 MB, which another user may change meanwhile.
int NcclVersionOfLibrary(const std::string& path) {
  constexpr std::string_view kText = "NCCL version ";
  constexpr size_t kPieceBytes = 1 << 20, kOverlapBytes = 32;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0;
  std::ifstream file(path, std::ios::binary);
  std::string piece;
  while (file) {
    piece.erase(0, piece.size() - std::min(piece.size(), kOverlapBytes));
    const size_t kept = piece.size();
    piece.resize(kept + kPieceBytes);
    file.read(piece.data() + kept, kPieceBytes);
    piece.resize(kept + static_cast<size_t>(file.gcount()));
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

std::vector<Check> CheckSegment(const collector::NodeSnapshot& node, uint64_t pid) {
  const collector::ProcessSnapshot* found = nullptr;
  for (const collector::ProcessSnapshot& process : node.processes) {
    if (process.pid == pid && (found == nullptr || process.is_alive)) found = &process;
  }
  const std::string name = fmt::format("segment of process {}", pid);
  if (found == nullptr || !found->is_alive) {
    return {{.verdict = Verdict::kFail,
             .what = name,
             .detail = found == nullptr ? "there is none in the directories above"
                                        : found->segment + " is of a process that has ended",
             .change = "run the job with NCCL_DEBUG=INFO and look for nccl-exporter in its log"}};
  }
  size_t in_flight = 0, open = 0;
  int64_t last_progress = 0;
  std::set<std::string> times;
  for (const collector::CommunicatorSnapshot& communicator : found->communicators) {
    if (communicator.is_closed || !communicator.has_identity) continue;
    ++open;
    in_flight += communicator.in_flight.size();
    last_progress = std::max(last_progress, communicator.last_progress_realtime_ns);
    times.insert(fmt::format("{} ({}: {})", NameOf(communicator.timing_source),
                             NameOf(communicator.timing_reason),
                             RowIn(kTimingReasons, communicator.timing_reason).meaning));
  }
  std::vector<Check> checks{
      {.what = name,
       .detail = fmt::format("{}, plugin {}, {}, {} in flight, last progress {}{}", found->segment,
                             Printable(found->plugin_version), CountText(open, "communicator"),
                             CountText(in_flight, "operation"), ClockText(last_progress),
                             found->is_stopped.value_or(false) ? ", stopped" : ""),
       .change = {}}};
  for (const std::string& text : times)
    checks.push_back({.what = "times of operations", .detail = text, .change = {}});
  return checks;
}

Check CheckDaemon(const std::string& address, const std::string& answer, const std::string& fault) {
  Check check{.what = "daemon at " + address, .detail = answer, .change = {}};
  if (!fault.empty()) {
    check.verdict = Verdict::kFail;
    check.detail = fault;
    check.change = "start it (systemctl start nccl-exporter), or give its --web.listen-address";
  } else if (answer.find(" 401 ") != std::string::npos) {
    check.detail += ": it asks for a password, so it serves";
  } else if (answer.find(" 200 ") == std::string::npos) {
    check.verdict = Verdict::kWarn;
    check.change =
        "look at its log; with TLS or another server behind this port this is no answer "
        "of its";
  }
  return check;
}

}  // namespace nccl_exporter::exporter
