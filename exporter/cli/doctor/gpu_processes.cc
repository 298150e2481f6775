// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/doctor/gpu_processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "exporter/cli/doctor/checks.h"

namespace nccl_exporter::exporter {
namespace {

// At one look: a node has fewer processes, unless a user starts them without end.
constexpr size_t kMostProcesses = 32768;
// For one process: 65,530 mappings (vm.max_map_count) of 100 bytes. The rest is not looked at.
constexpr size_t kMostMapsBytes = 8 << 20;
constexpr const char* kFirstPidNamespace = "pid:[4026531836]";  // PROC_PID_INIT_INO of Linux

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

}  // namespace

GpuProcesses GpuProcessesIn(const std::string& proc) {
  GpuProcesses found;
  std::error_code error;
  found.sees_all =
      std::filesystem::read_symlink(proc + "/self/ns/pid", error) == kFirstPidNamespace;
  std::string maps;
  size_t looked_at = 0;
  for (const auto& entry : std::filesystem::directory_iterator(proc, error)) {
    const std::string pid = entry.path().filename();
    if (!IsPid(pid)) continue;
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

UnmeasuredWatch::UnmeasuredWatch(std::string proc, std::chrono::nanoseconds interval,
                                 OnCount on_count) {
  std::thread([state = state_, proc = std::move(proc), interval, on_count = std::move(on_count)] {
    while (true) {
      const std::optional<uint64_t> count = GpuProcessesIn(proc).Unmeasured();
      std::unique_lock lock(state->mutex);
      if (state->is_stopping) return;
      on_count(count);
      if (state->stop.wait_for(lock, interval, [&] { return state->is_stopping; })) return;
    }
  }).detach();
}

UnmeasuredWatch::~UnmeasuredWatch() {
  const std::lock_guard lock(state_->mutex);
  state_->is_stopping = true;
  state_->stop.notify_all();
}

}  // namespace nccl_exporter::exporter
