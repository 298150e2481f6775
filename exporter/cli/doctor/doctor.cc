// SPDX-License-Identifier: Apache-2.0
// Examine(), which gathers what the checks need.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "collector/node_snapshot.h"
#include "exporter/cli/doctor/checks.h"
#include "exporter/cli/doctor/gpu_processes.h"

namespace nccl_exporter::exporter {
namespace {

// As plugin/segment/segment.cc has them.
constexpr std::array kSharedDirectories{"/run/nccl-exporter", "/dev/shm/nccl-exporter"};

// Files of /proc have no size.
std::string Content(const std::string& path, std::string& fault) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) fault = path + ": " + std::strerror(errno);
  return text;
}

// A process as /proc describes it.
struct Process {
  std::string folder = {};  // /proc/PID; empty: no process, and this user is the writer
  Writer writer{.uid = ::geteuid(), .gid = ::getegid()};
  Environment environment = {};
  std::string maps = {};
  uint64_t innermost_pid = 0;
  std::string fault = {};  // why it cannot be examined

  bool is_there() const { return !folder.empty(); }
  std::string Variable(const char* name) const { return ValueIn(environment, name); }
  // A path of its own, absolute or from the directory that it works in.
  SeenPath Seen(const std::string& path) const {
    std::error_code error;
    const std::filesystem::path here = std::filesystem::read_symlink(folder + "/cwd", error);
    return {is_there() ? folder + "/root" : "", error ? path : (here / path).string()};
  }
};

Process ReadProcess(const DoctorInput& input) {
  Process process;
  if (input.pid == 0) return process;
  process.folder = input.proc + '/' + std::to_string(input.pid);
  struct stat status {};
  if (::stat(process.folder.c_str(), &status) != 0) {
    process.fault = process.folder + ": " + std::strerror(errno);
    return process;
  }
  process.writer = {.uid = status.st_uid, .gid = status.st_gid};
  process.environment = ParseEnvironment(Content(process.folder + "/environ", process.fault));
  process.maps = Content(process.folder + "/maps", process.fault);
  process.innermost_pid = InnermostPid(Content(process.folder + "/status", process.fault));
  if (process.fault.empty() && process.maps.empty())
    process.fault = process.folder + ": it has no memory: it has ended, or belongs to the kernel";
  return process;
}

// "--pid 4711 or --pid 4712".
std::string PidsText(std::vector<std::string> pids) {
  pids.resize(std::min<size_t>(pids.size(), 3));
  return pids.empty() ? "" : fmt::format("--pid {}", fmt::join(pids, " or --pid "));
}

// The other processes that have this PID in a PID namespace of their own.
std::string NamesakesOf(const DoctorInput& input) {
  std::vector<std::string> pids;
  std::error_code error;
  std::string ignored;
  for (const auto& entry : std::filesystem::directory_iterator(input.proc, error)) {
    const std::string pid = entry.path().filename();
    if (IsPid(pid) && pid != std::to_string(input.pid) &&
        InnermostPid(Content(entry.path() / "status", ignored)) == input.pid)
      pids.push_back(pid);
  }
  return PidsText(pids);
}

// Names processes to look at, where none is given. torchrun and data loaders map NCCL as well, but
// no device of a GPU.
void AddProcesses(const DoctorInput& input, std::vector<Check>& checks) {
  const GpuProcesses found = GpuProcessesIn(input.proc);
  if (found.processes == 0) return;
  const std::vector<std::string>& unseen = found.without_segment;
  const Check processes{.what = "processes with NCCL and a GPU"};
  const std::string detail =
      fmt::format("{} of {} have no segment", unseen.size(), found.processes);
  checks.push_back(unseen.empty() ? processes.Holds(detail)
                                  : processes.Warns(detail,
                                                    "nothing before the first collective; "
                                                    "then " +
                                                        PidsText(unseen) + " says more"));
}

// Whether the process sees other mounts than we do, as in a container.
bool IsApart(const Process& process) {
  std::error_code error;
  const auto its = std::filesystem::read_symlink(process.folder + "/ns/mnt", error);
  return !error && its != std::filesystem::read_symlink("/proc/self/ns/mnt", error);
}

// The directories of the daemon, and those that the process may take, as it sees them, up to the
// first that it can.
void AddDirectories(const DoctorInput& input, const Process& process, std::vector<Check>& checks) {
  for (std::string path : input.segment_dirs) {
    const bool is_private = collector::IsPrivatePattern(path);
    if (is_private) path.replace(path.size() - 1, 1, std::to_string(process.writer.uid));
    if (is_private && !std::filesystem::exists(path)) continue;  // the plugin makes it
    checks.push_back(CheckDirectory(path, process.writer, false));
  }
  if (!process.is_there() || !process.fault.empty()) return;
  const std::string chosen = process.Variable("NCCL_EXPORTER_DIR");
  if (!chosen.empty())
    return checks.push_back(CheckDirectory(process.Seen(chosen), process.writer, true));
  if (!IsApart(process)) return;
  for (const char* const shared : kSharedDirectories) {
    checks.push_back(CheckDirectory(process.Seen(shared), process.writer, false));
    if (checks.back().verdict == Verdict::kOk) return;
  }
}

void AddPlugin(const Process& process, std::vector<Check>& checks) {
  if (SwitchesPluginsOff(process.Variable("NCCL_PROFILER_PLUGIN"))) return;
  std::vector<SeenPath> paths;
  for (const std::string& path : PluginPaths(process.environment))
    paths.push_back(process.Seen(path));
  const auto found =
      std::ranges::find_if(paths, [](const SeenPath& path) { return Find(path).is_open(); });
  const SeenPath& path = found == paths.end() ? paths.front() : *found;
  // Our own C library says nothing about that of a job: a release carries one.
  const std::string libc = MappedFile(process.maps, "libc.so.6");
  const SeenPath program = process.is_there() ? process.folder + "/exe" : "/proc/self/exe";
  Check check = CheckPlugin(path, ReadLibrary(program).machine,
                            libc.empty() ? GlibcVersion() : ReadLibrary(process.Seen(libc)).glibc,
                            process.writer);
  if (process.is_there() && check.verdict == Verdict::kOk) {
    check.detail += MappedFile(process.maps, path.path.substr(path.path.rfind('/') + 1)).empty()
                        ? "; not loaded yet: NCCL loads it with the first communicator"
                        : "; loaded";
  }
  checks.push_back(std::move(check));
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
  const int version = library.empty() ? 0 : NcclVersionOfLibrary(process.Seen(library));
  if (version != 0) return CheckNccl(version, library, plugin);
  return CheckNccl(0, "no libnccl.so is mapped; it may be linked statically", plugin);
}

PlainAnswer AskReady(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.empty() || host == "0.0.0.0") host = "127.0.0.1";
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return PlainGet({.server = {.host = host, .port = address.substr(colon + 1)},
                   .path = "/-/ready",
                   .patience = std::chrono::seconds(2),
                   .most_bytes = 4096});  // of a few words
}

// NCCL, the environment and the segment of the process.
void AddProcess(const DoctorInput& input, const Process& process,
                const collector::NodeSnapshot& node, std::vector<Check>& checks) {
  const std::string segment = MappedSegment(process.maps);
  checks.push_back(CheckNcclOf(process, FindSegment(node, segment)));
  std::ranges::move(CheckEnvironment(process.environment, !segment.empty()),
                    std::back_inserter(checks));
  const Check name_space{.what = "PID namespace"};
  if (process.innermost_pid != input.pid) {
    checks.push_back(name_space.Holds(
        fmt::format("the process is {} in its own, and so is its segment", process.innermost_pid)));
  } else if (const std::string namesakes = NamesakesOf(input);
             segment.empty() && !namesakes.empty()) {
    checks.push_back(name_space.Warns("other processes have this PID in their own",
                                      "if the PID is from a container or the page: " + namesakes));
  }
  std::ranges::move(CheckSegment(node, process.innermost_pid, segment), std::back_inserter(checks));
}

}  // namespace

std::vector<Check> Examine(const DoctorInput& input, const collector::NodeSnapshot& node) {
  std::vector<Check> checks;
  const Process process = ReadProcess(input);
  AddDirectories(input, process, checks);
  if (process.fault.empty()) {
    AddPlugin(process, checks);
    process.is_there() ? AddProcess(input, process, node, checks) : AddProcesses(input, checks);
  } else {
    const std::string namesakes = NamesakesOf(input);
    checks.push_back(Check{.what = fmt::format("process {}", input.pid)}.Fails(
        process.fault,
        namesakes.empty()
            ? "give the PID of a rank in this PID namespace, and run as root or as its user"
            : namesakes + ", which has this PID in its own PID namespace"));
  }
  for (const std::string& address : input.listen_addresses)
    checks.push_back(CheckDaemon(address, AskReady(address)));
  return checks;
}

}  // namespace nccl_exporter::exporter
