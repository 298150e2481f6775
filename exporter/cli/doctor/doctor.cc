// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/doctor/doctor.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "exporter/cli/client/plain_get.h"
#include "exporter/cli/doctor/gpu_processes.h"

namespace nccl_exporter::exporter {
namespace {

// As plugin/segment/segment.cc has them.
constexpr std::string_view kPrivateDirectories = "-*";
constexpr std::array<std::string_view, 2> kSharedDirectories{"/run/nccl-exporter",
                                                             "/dev/shm/nccl-exporter"};
// Processes that are named for a PID of another namespace.
constexpr size_t kMostNamedProcesses = 3;

// What /proc says of a process.
struct Process {
  std::string folder;  // /proc/PID
  Writer writer;
  Environment environment;
  std::string maps;
  uint64_t innermost_pid = 0;

  std::string Variable(const std::string& name) const {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
  }
  // The directory that it works in, as it sees it, with a slash; empty without a process.
  std::string Directory() const {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(folder + "/cwd", error);
    return error ? "" : target.string() + '/';
  }
};

// Files of /proc have no size.
std::string Content(const std::string& path, std::string& fault) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) fault = path + ": " + std::strerror(errno);
  return text;
}

Process ReadProcess(const DoctorInput& input, std::string& fault) {
  Process process{.folder = input.proc + '/' + std::to_string(input.pid),
                  .writer = {},
                  .environment = {},
                  .maps = {}};
  struct stat status {};
  if (::stat(process.folder.c_str(), &status) != 0) {
    fault = process.folder + ": " + std::strerror(errno);
    return process;
  }
  process.writer = {.uid = status.st_uid, .gid = status.st_gid};
  process.environment = ParseEnvironment(Content(process.folder + "/environ", fault));
  process.maps = Content(process.folder + "/maps", fault);
  process.innermost_pid = InnermostPid(Content(process.folder + "/status", fault));
  if (fault.empty() && process.maps.empty())
    fault = process.folder + ": it has no memory: it has ended, or belongs to the kernel";
  return process;
}

// The PIDs of the folders of /proc for which the condition holds.
template <typename Condition>
std::vector<std::string> PidsWhere(const DoctorInput& input, Condition condition) {
  std::vector<std::string> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(input.proc, error)) {
    std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") == std::string::npos && condition(entry.path()))
      pids.push_back(std::move(pid));
  }
  return pids;
}

// "--pid 4711 or --pid 4712".
std::string PidsText(const std::vector<std::string>& pids) {
  std::string text;
  for (size_t i = 0; i < std::min(pids.size(), kMostNamedProcesses); ++i)
    text += (i == 0 ? "--pid " : " or --pid ") + pids[i];
  return text;
}

// The other processes that have this PID in a PID namespace of their own.
std::string NamesakesOf(const DoctorInput& input) {
  return PidsText(PidsWhere(input, [&](const std::filesystem::path& folder) {
    std::string ignored;
    return folder.filename() != std::to_string(input.pid) &&
           InnermostPid(Content(folder / "status", ignored)) == input.pid;
  }));
}

Check NoProcess(const DoctorInput& input, const std::string& fault) {
  const std::string namesakes = NamesakesOf(input);
  return {.verdict = Verdict::kFail,
          .what = fmt::format("process {}", input.pid),
          .detail = fault,
          .change = namesakes.empty()
                        ? "give the PID of a rank in this PID namespace, and run as root or as its "
                          "user"
                        : namesakes + ", which has this PID in its own PID namespace"};
}

// Which processes to look at, where none is given. torchrun and data loaders map NCCL as well, but
// no device of a GPU.
void AddProcesses(const DoctorInput& input, std::vector<Check>& checks) {
  const GpuProcesses found = GpuProcessesIn(input.proc);
  const std::vector<std::string>& unseen = found.without_segment;
  if (found.processes == 0) return;
  Check check{.what = "processes with NCCL and a GPU",
              .detail = fmt::format("{} of {} have no segment", unseen.size(), found.processes),
              .change = {}};
  if (!unseen.empty()) {
    check.verdict = Verdict::kWarn;
    check.change = "nothing before the first collective; then " + PidsText(unseen) + " says more";
  }
  checks.push_back(std::move(check));
}

// Whether the process sees other mounts than we do, as in a container.
bool IsApart(const Process& process) {
  struct stat its {
  }, ours{};
  return ::stat((process.folder + "/ns/mnt").c_str(), &its) == 0 &&
         ::stat("/proc/self/ns/mnt", &ours) == 0 && its.st_ino != ours.st_ino;
}

void AddDirectories(const DoctorInput& input, const Writer& writer, std::vector<Check>& checks) {
  for (std::string path : input.segment_dirs) {
    const bool is_private = path.ends_with(kPrivateDirectories);
    if (is_private) path.replace(path.size() - 1, 1, std::to_string(writer.uid));
    if (is_private && !std::filesystem::exists(path)) continue;  // the plugin makes it
    checks.push_back(CheckDirectory(path, writer, false));
  }
}

// The directories that the process may take, as the process sees them, up to the first that it can;
// AddDirectories has done with those that it shares with us.
void AddDirectoriesOfProcess(const Process& process, std::vector<Check>& checks) {
  const std::string chosen = process.Variable("NCCL_EXPORTER_DIR");
  const std::string root = process.folder + "/root";
  if (!chosen.empty()) {
    checks.push_back(CheckDirectory(SeenPath(root, chosen), process.writer, true));
  } else if (IsApart(process)) {
    for (const std::string_view shared : kSharedDirectories) {
      checks.push_back(CheckDirectory(SeenPath(root, std::string(shared)), process.writer, false));
      if (checks.back().verdict == Verdict::kOk) break;
    }
  }
}

void AddPlugin(const Process& process, std::vector<Check>& checks) {
  if (SwitchesPluginsOff(process.Variable("NCCL_PROFILER_PLUGIN"))) return;
  const bool has_process = !process.maps.empty();
  const std::string root = has_process ? process.folder + "/root" : "";
  std::vector<SeenPath> paths;
  for (const std::string& path : PluginPaths(process.environment))
    paths.emplace_back(root, path.starts_with('/') ? path : process.Directory() + path);
  GlibcVersion libc = SystemLibc("");
  if (has_process) {
    const std::string mapped = MappedFile(process.maps, "libc.so.6");
    libc = mapped.empty() ? GlibcVersion() : ReadElfFile(SeenPath(root, mapped)).defines_glibc;
  }
  const auto found =
      std::ranges::find_if(paths, [](const SeenPath& path) { return Find(path).is_open(); });
  const uint16_t machine =
      ReadElfFile(has_process ? process.folder + "/exe" : "/proc/self/exe").machine;
  const SeenPath& path = found == paths.end() ? paths.front() : *found;
  Check check = CheckPlugin(path, machine, libc, process.writer);
  const std::string name = path.path.substr(path.path.rfind('/') + 1);
  if (has_process && check.verdict == Verdict::kOk) {
    check.detail += MappedFile(process.maps, name).empty()
                        ? "; not loaded yet: NCCL loads it with the first communicator"
                        : "; loaded";
  }
  checks.push_back(std::move(check));
}

// The host's name as the process has it: its segment has that, and in a container it is not ours.
std::string HostOf(const collector::ProcessSnapshot* segment) {
  if (segment != nullptr) return segment->host_name;
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// NCCL's log is the file of NCCL_DEBUG_FILE, or the standard output.
Check CheckPluginLogOf(const Process& process, const collector::ProcessSnapshot* segment) {
  const std::string pattern = process.Variable("NCCL_DEBUG_FILE");
  if (!pattern.empty()) {
    const std::string name = NcclLogPath(pattern, HostOf(segment), process.innermost_pid);
    return CheckPluginLog(process.environment,
                          SeenPath(process.folder + "/root",
                                   name.starts_with('/') ? name : process.Directory() + name),
                          name);
  }
  const std::string output = process.folder + "/fd/1";
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(output, error);
  return CheckPluginLog(process.environment, output,
                        "its standard output" + (error ? "" : " (" + target + ")"));
}

// The release that the plugin was called by; else that of the library that has NCCL.
Check CheckNcclOf(const Process& process, const collector::ProcessSnapshot* segment) {
  const std::string plugin = process.Variable("NCCL_PROFILER_PLUGIN");
  if (segment != nullptr) {
    for (const collector::CommunicatorSnapshot& communicator : segment->communicators) {
      if (communicator.nccl_version != 0)
        return CheckNccl(communicator.nccl_version, "reported to the plugin", plugin);
    }
  }
  const std::string library = LibraryWithNccl(process.maps);
  const int version =
      library.empty() ? 0 : NcclVersionOfLibrary(SeenPath(process.folder + "/root", library));
  if (version != 0) return CheckNccl(version, library, plugin);
  return CheckNccl(0, "no libnccl.so is mapped; it may be linked statically", plugin);
}

PlainAnswer AskReady(const std::string& address) {
  constexpr std::chrono::milliseconds kPatience{2000};
  constexpr size_t kMostBytes = 4096;  // of a few words
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.empty() || host == "0.0.0.0") host = "127.0.0.1";
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return PlainGet({.host = host,
                   .port = address.substr(colon + 1),
                   .path = "/-/ready",
                   .patience = kPatience,
                   .most_bytes = kMostBytes});
}

void AddDaemons(const DoctorInput& input, std::vector<Check>& checks) {
  for (const std::string& address : input.listen_addresses)
    checks.push_back(CheckDaemon(address, AskReady(address)));
}

// NCCL, the environment and the segment of the process.
void AddProcess(const DoctorInput& input, const Process& process,
                const collector::NodeSnapshot& node, std::vector<Check>& checks) {
  const std::string segment = MappedSegment(process.maps);
  checks.push_back(CheckNcclOf(process, FindSegment(node, segment)));
  std::ranges::move(CheckEnvironment(process.environment, !segment.empty()),
                    std::back_inserter(checks));
  checks.push_back(CheckPluginLogOf(process, FindSegment(node, segment)));
  if (process.innermost_pid != input.pid) {
    checks.push_back({.what = "PID namespace",
                      .detail = fmt::format("the process is {} in its own, and so is its segment",
                                            process.innermost_pid),
                      .change = {}});
  } else if (const std::string namesakes = NamesakesOf(input);
             segment.empty() && !namesakes.empty()) {
    checks.push_back({.verdict = Verdict::kWarn,
                      .what = "PID namespace",
                      .detail = "other processes have this PID in their own",
                      .change = "if the PID is from a container or the page: " + namesakes});
  }
  std::ranges::move(CheckSegment(node, process.innermost_pid, segment), std::back_inserter(checks));
}

}  // namespace

std::vector<Check> Examine(const DoctorInput& input, const collector::NodeSnapshot& node) {
  std::vector<Check> checks;
  Process process{.folder = {},
                  .writer = {.uid = ::geteuid(), .gid = ::getegid()},
                  .environment = {},
                  .maps = {}};
  std::string fault;
  if (input.pid != 0) process = ReadProcess(input, fault);
  AddDirectories(input, process.writer, checks);
  if (!fault.empty()) {
    checks.push_back(NoProcess(input, fault));
  } else {
    if (input.pid != 0) AddDirectoriesOfProcess(process, checks);
    AddPlugin(process, checks);
    if (input.pid != 0) {
      AddProcess(input, process, node, checks);
    } else {
      AddProcesses(input, checks);
    }
  }
  AddDaemons(input, checks);
  return checks;
}

}  // namespace nccl_exporter::exporter
