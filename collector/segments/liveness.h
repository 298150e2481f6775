// SPDX-License-Identifier: Apache-2.0
// Whether the writer of a segment is alive: it holds a POSIX write lock on the file, which goes
// with the process, also at SIGKILL, and which no child inherits. A process id would mean nothing
// across PID namespaces and be reused. The kernel reports the holder of the lock, in our namespace:
// with its start time that shows a process that has lost its lock. The PID in the file is a claim.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {

struct Writer {
  bool is_alive = false;
  pid_t pid = 0;  // in the caller's PID namespace; 0: it has none there
};

// The field `state` of /proc/PID/stat: after the name, which is in parentheses and may contain any
// character.
inline std::optional<char> ProcessState(std::string_view stat) {
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return std::nullopt;
  return stat[name_end + 2];
}

// Start time and stack of a process, which distinguish it from a later one with its PID, and from
// itself after exec. The stack begins at a random place; it is 0 where the caller may not trace the
// process.
struct ProcessMark {
  uint64_t start_ticks = 0;
  uint64_t stack_begin = 0;

  bool operator==(const ProcessMark&) const = default;
};

// Mark in the text of /proc/PID/stat (proc(5)). Nothing of a process that is ending: the kernel
// takes its lock before its end, and GPUs make that last for seconds.
inline std::optional<ProcessMark> MarkIn(std::string_view stat) {
  constexpr int kFlags = 9, kStartTime = 22, kStackBegin = 28;
  constexpr uint64_t kExiting = 4;  // include/linux/sched.h: PF_EXITING
  const std::optional<char> state = ProcessState(stat);
  if (!state || *state == 'Z' || *state == 'X') return std::nullopt;
  std::istringstream fields(std::string(stat.substr(stat.rfind(") ") + 2)));
  ProcessMark mark;
  std::string field;
  for (int number = 3; number <= kStackBegin; ++number) {
    if (!(fields >> field)) return std::nullopt;
    const uint64_t value = std::strtoull(field.c_str(), nullptr, 10);
    if (number == kFlags && (value & kExiting) != 0) return std::nullopt;
    if (number == kStartTime) mark.start_ticks = value;
    if (number == kStackBegin) mark.stack_begin = value;
  }
  return mark.start_ticks != 0 ? std::optional(mark) : std::nullopt;
}

// Finds the process that holds the write lock. `descriptor` may be read-only. If the file system
// does not know, the writer is taken for alive: nothing of it is lost then. Locks of the calling
// process itself are not seen.
inline Writer FindWriter(int descriptor) {
  struct flock lock {};
  // Only a write lock conflicts with it: another reader's lock is no sign of a writer.
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor, F_GETLK, &lock) != 0) return {.is_alive = true};
  if (lock.l_type == F_UNLCK) return {};
  return {.is_alive = true, .pid = std::max<pid_t>(lock.l_pid, 0)};
}

// The beginning of a file of /proc, which for /proc/PID/status is all of it; empty where it cannot
// be read.
inline std::string ReadProcFile(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text;
  const ssize_t length = ::read(file.number(), text.data(), text.size());
  return {text.data(), length > 0 ? static_cast<size_t>(length) : 0};
}

// The mark of a process of the caller's PID namespace; nothing if /proc does not show it, or shows
// another namespace. The file of the first thread costs the same for any number of threads.
inline std::optional<ProcessMark> MarkOf(pid_t pid) {
  std::array<char, 32> self{};
  if (pid == 0 || ::readlink("/proc/self", self.data(), self.size() - 1) <= 0 ||
      std::to_string(::getpid()) != self.data())
    return std::nullopt;
  const std::string number = std::to_string(pid);
  return MarkIn(ReadProcFile("/proc/" + number + "/task/" + number + "/stat"));
}

// The offset of CLOCK_MONOTONIC that a text of /proc/PID/timens_offsets has; 0 without one.
inline int64_t MonotonicOffset(const std::string& text) {
  long long seconds = 0, nanoseconds = 0;
  constexpr long long kMost = 1LL << 33;
  if (std::sscanf(text.c_str(), "monotonic %lld %lld", &seconds, &nanoseconds) != 2 ||
      seconds > kMost || seconds < -kMost || nanoseconds < 0 || nanoseconds >= 1'000'000'000)
    return 0;
  return seconds * 1'000'000'000 + nanoseconds;
}

// Distance by which the writer's CLOCK_MONOTONIC, as it was just found, is ahead of ours: they
// differ in a time namespace. Nothing if there is no writer, or /proc does not show it. The file
// has the offset of the process's children, which is that of the process unless it has made a
// namespace for them.
inline std::optional<int64_t> ClockOffsetOf(const Writer& writer) {
  if (writer.pid == 0) return std::nullopt;
  const std::string process = "/proc/" + std::to_string(writer.pid);
  const std::string text = ReadProcFile(process + "/timens_offsets");
  if (text.empty()) return std::nullopt;
  const int64_t own_ns = MonotonicOffset(ReadProcFile("/proc/self/timens_offsets"));
  const auto name_space = [&](const char* name) {
    std::array<char, 64> link{};
    const ssize_t length = ::readlink((process + name).c_str(), link.data(), link.size());
    return std::string(link.data(), length > 0 ? static_cast<size_t>(length) : 0);
  };
  if (name_space("/ns/time") != name_space("/ns/time_for_children")) return 0;
  return MonotonicOffset(text) - own_ns;
}

// Whether the writer, as it was just found, is stopped by a signal or a debugger. Nothing if there
// is none, or if /proc does not show it: in a PID namespace that the caller does not see into, or
// hidden by the mount option hidepid.
inline std::optional<bool> IsStopped(const Writer& writer) {
  if (writer.pid == 0) return std::nullopt;
  const std::optional<char> state =
      ProcessState(ReadProcFile("/proc/" + std::to_string(writer.pid) + "/stat"));
  return state ? std::optional(*state == 'T' || *state == 't') : std::nullopt;
}

}  // namespace nccl_exporter::collector
