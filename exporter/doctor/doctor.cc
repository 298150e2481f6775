// SPDX-License-Identifier: Apache-2.0
#include "exporter/doctor/doctor.h"

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
#include <utility>

#include "exporter/client/plain_get.h"

namespace nccl_exporter::exporter {
namespace {

// As plugin/segment/segment.cc has them.
constexpr std::string_view kPrivateDirectories = "-*";

// What /proc says of a process.
struct Process {
  std::string folder;  // /proc/PID
  Writer writer;
  Environment environment;
  std::string maps;
  uint64_t innermost_pid = 0;
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
  return process;
}

void AddDirectories(const DoctorInput& input, const Writer& writer, std::vector<Check>& checks) {
  for (std::string path : input.segment_dirs) {
    const bool is_private = path.ends_with(kPrivateDirectories);
    if (is_private) path.replace(path.size() - 1, 1, std::to_string(writer.uid));
    if (is_private && !std::filesystem::exists(path)) continue;  // the plugin makes it
    checks.push_back(CheckDirectory(path, writer, false));
  }
}

// The directory that the process was given, as the process sees it.
void AddChosenDirectory(const DoctorInput& input, const Process& process,
                        std::vector<Check>& checks) {
  const auto chosen = process.environment.find("NCCL_EXPORTER_DIR");
  if (chosen == process.environment.end() || chosen->second.empty()) return;
  checks.push_back(CheckDirectory(process.folder + "/root" + chosen->second, process.writer, true));
  struct stat there {
  }, here{};
  const bool is_watched = std::ranges::any_of(input.segment_dirs, [&](const std::string& path) {
    return ::stat((process.folder + "/root" + chosen->second).c_str(), &there) == 0 &&
           ::stat(path.c_str(), &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
  });
  if (is_watched) return;
  checks.push_back({.verdict = Verdict::kFail,
                    .what = "NCCL_EXPORTER_DIR",
                    .detail = chosen->second + " is none of the directories above",
                    .change = "mount the same directory in both places, or give --segment.dir"});
}

GlibcVersion OurLibc() {
  GlibcVersion version;
  std::sscanf(gnu_get_libc_version(), "%d.%d", &version.major, &version.minor);
  return version;
}

void AddPlugin(const Process& process, std::vector<Check>& checks) {
  const bool has_process = !process.maps.empty();
  const std::string root = has_process ? process.folder + "/root" : "";
  std::vector<std::string> paths = PluginPaths(process.environment, root);
  GlibcVersion libc = OurLibc();
  if (has_process) {
    const std::string mapped = MappedFile(process.maps, "libc.so.6");
    libc = mapped.empty() ? GlibcVersion() : ReadElfFile(root + mapped).defines_glibc;
  }
  const auto found = std::ranges::find_if(
      paths, [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; });
  const uint16_t machine =
      ReadElfFile(has_process ? process.folder + "/exe" : "/proc/self/exe").machine;
  const std::string& path = found == paths.end() ? paths.front() : *found;
  Check check = CheckPlugin(path, machine, libc);
  const std::string name = path.substr(path.rfind('/') + 1);
  if (has_process && check.verdict == Verdict::kOk) {
    check.detail += MappedFile(process.maps, name).empty()
                        ? "; not loaded yet: NCCL loads it with the first communicator"
                        : "; loaded";
  }
  checks.push_back(std::move(check));
}

void AddNccl(const Process& process, const collector::NodeSnapshot& node,
             std::vector<Check>& checks) {
  for (const collector::ProcessSnapshot& seen : node.processes) {
    if (!seen.is_alive || seen.pid != process.innermost_pid) continue;
    for (const collector::CommunicatorSnapshot& communicator : seen.communicators) {
      if (communicator.nccl_version == 0) continue;
      checks.push_back(CheckNccl(communicator.nccl_version, "as it told the plugin"));
      return;
    }
  }
  const std::string library = MappedFile(process.maps, "libnccl.so");
  if (library.empty()) {
    checks.push_back(CheckNccl(0, "no libnccl.so is mapped; it may be linked statically"));
  } else {
    checks.push_back(CheckNccl(NcclVersionOfLibrary(process.folder + "/root" + library), library));
  }
}

// The first line of the answer; `fault` where there is none.
std::string AskReady(const std::string& address, std::string& fault) {
  constexpr std::chrono::milliseconds kPatience{2000};
  constexpr size_t kMostBytes = 4096;  // of a few words
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.empty() || host == "0.0.0.0") host = "127.0.0.1";
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const PlainAnswer answer = PlainGet({.host = host,
                                       .port = address.substr(colon + 1),
                                       .path = "/-/ready",
                                       .patience = kPatience,
                                       .most_bytes = kMostBytes});
  if (!answer.is_connected) fault = answer.fault;
  return answer.status_line.empty() ? "no answer to GET /-/ready" : answer.status_line;
}

void AddDaemons(const DoctorInput& input, std::vector<Check>& checks) {
  for (const std::string& address : input.listen_addresses) {
    std::string fault;
    const std::string answer = AskReady(address, fault);
    checks.push_back(CheckDaemon(address, answer, fault));
  }
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
    checks.push_back({.verdict = Verdict::kFail,
                      .what = fmt::format("process {}", input.pid),
                      .detail = fault,
                      .change = "give the PID of a rank in this PID namespace, and run as root or "
                                "as its user"});
  } else if (input.pid != 0) {
    AddChosenDirectory(input, process, checks);
  }
  if (fault.empty()) AddPlugin(process, checks);
  if (fault.empty() && input.pid != 0) {
    AddNccl(process, node, checks);
    std::ranges::move(CheckEnvironment(process.environment), std::back_inserter(checks));
    if (process.innermost_pid != input.pid) {
      checks.push_back({.what = "PID namespace",
                        .detail = fmt::format("the process is {} in its own, and so is its segment",
                                              process.innermost_pid),
                        .change = {}});
    }
    std::ranges::move(CheckSegment(node, process.innermost_pid), std::back_inserter(checks));
  }
  AddDaemons(input, checks);
  return checks;
}

}  // namespace nccl_exporter::exporter
