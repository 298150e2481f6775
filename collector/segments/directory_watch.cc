// SPDX-License-Identifier: Apache-2.0
// Reads inotify.
#include "collector/segments/directory_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace nccl_exporter::collector {
namespace {

// Names that come and go, permissions, sizes, and the end of the directory itself. A plugin writes
// by a mapping, which makes no event; it locks its file before it gives it a size.
constexpr uint32_t kEvents = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                             IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

// Of 64 KiB each: more than the kernel queues by default. Whoever makes events without end must not
// keep us here.
constexpr int kMaxReads = 16;

}  // namespace

DirectoryWatch::DirectoryWatch() : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

bool DirectoryWatch::Watch(const std::string& path) {
  const int number = ::inotify_add_watch(inotify_.number(), path.c_str(), kEvents);
  const auto known = numbers_.find(path);
  const int before = known == numbers_.end() ? -1 : known->second;
  if (number < 0) {
    numbers_.erase(path);
  } else {
    numbers_[path] = number;
  }
  if (before >= 0 && before != number) Unwatch(before);
  return number >= 0;
}

void DirectoryWatch::Unwatch(int number) {
  const bool is_used =
      std::ranges::any_of(numbers_, [&](const auto& entry) { return entry.second == number; });
  if (!is_used)
    ::inotify_rm_watch(inotify_.number(), number);  // fails where the directory is gone already
}

std::set<std::string> DirectoryWatch::TakeChanges() {
  std::set<std::string> changed;
  alignas(inotify_event) std::array<char, 65536> events;
  for (int reads = 0; reads < kMaxReads; ++reads) {
    const ssize_t length = ::read(inotify_.number(), events.data(), events.size());
    if (length <= 0) break;
    NoteEvents(std::span(events).first(static_cast<size_t>(length)), changed);
  }
  return changed;
}

void DirectoryWatch::NoteEvents(std::span<const char> events,
                                std::set<std::string>& changed) const {
  while (events.size() >= sizeof(inotify_event)) {
    inotify_event event;
    std::memcpy(&event, events.data(), sizeof(event));
    // Events were lost: anything may have changed.
    const bool is_overflow = (event.mask & IN_Q_OVERFLOW) != 0;
    for (const auto& [path, number] : numbers_) {
      if (is_overflow || number == event.wd) changed.insert(path);
    }
    events = events.subspan(sizeof(event) + event.len);
  }
}

}  // namespace nccl_exporter::collector
