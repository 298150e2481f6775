// SPDX-License-Identifier: Apache-2.0
// Asks the kernel for the lock that stands in the way of reading the file, and /proc for its
// holder.
#include "collector/segments/liveness.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {
namespace {

// The field `state` of /proc/PID/stat: after the name, which is in parentheses and may contain any
// character.
std::optional<char> StateOf(std::string_view stat) {
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return std::nullopt;
  return stat[name_end + 2];
}

}  // namespace

Writer FindWriter(int descriptor) {
  struct flock lock {};
  // Only a write lock conflicts with it: another reader's lock is no sign of a writer.
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor, F_GETLK, &lock) != 0) return {.is_alive = true};
  if (lock.l_type == F_UNLCK) return {};
  return {.is_alive = true, .pid = std::max<pid_t>(lock.l_pid, 0)};
}

std::optional<bool> IsStopped(const Writer& writer) {
  if (writer.pid == 0) return std::nullopt;
  const FileDescriptor file(
      ::open(("/proc/" + std::to_string(writer.pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  const ssize_t length = ::read(file.number(), text.data(), text.size());
  const std::optional<char> state =
      StateOf({text.data(), length > 0 ? static_cast<size_t>(length) : 0});
  return state ? std::optional(*state == 'T' || *state == 't') : std::nullopt;
}

}  // namespace nccl_exporter::collector
