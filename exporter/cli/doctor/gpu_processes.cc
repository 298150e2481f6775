// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/doctor/gpu_processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "exporter/cli/doctor/checks.h"

namespace nccl_exporter::exporter {
namespace {

// include/linux/proc_ns.h: PROC_PID_INIT_INO.
constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";

// False if the process may not be looked at; one that has ended may.
bool ReadMaps(const std::string& path, std::string& maps) {
  maps.clear();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT || errno == ESRCH;
  std::string part(64 << 10, '\0');
  ssize_t size = 0;
  while (maps.size() < kMostMapsBytes && (size = ::read(file, part.data(), part.size())) > 0)
    maps.append(part, 0, static_cast<size_t>(size));
  const bool is_refused = size < 0 && errno != ESRCH;
  ::close(file);
  return !is_refused;
}

bool IsInFirstPidNamespace(const std::string& proc) {
  std::error_code error;
  return std::filesystem::read_symlink(proc + "/self/ns/pid", error) == kFirstPidNamespace;
}

}  // namespace

GpuProcesses GpuProcessesIn(const std::string& proc) {
  GpuProcesses found{.processes = 0,
                     .without_segment = {},
                     .sees_all = IsInFirstPidNamespace(proc)};
  std::error_code error;
  std::string maps;
  size_t looked_at = 0;
  for (const auto& entry : std::filesystem::directory_iterator(proc, error)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (++looked_at > kMostProcesses) {
      found.sees_all = false;
      break;
    }
    if (!ReadMaps(entry.path() / "maps", maps)) found.sees_all = false;
    if (LibraryWithNccl(maps).empty() || MappedFile(maps, "nvidia").empty()) continue;
    ++found.processes;
    if (MappedSegment(maps).empty()) found.without_segment.push_back(pid);
  }
  if (error) found.sees_all = false;
  return found;
}

std::optional<uint64_t> UnmeasuredProcesses(const GpuProcesses& found) {
  if (!found.sees_all) return std::nullopt;
  return found.without_segment.size();
}

}  // namespace nccl_exporter::exporter
