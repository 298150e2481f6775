// SPDX-License-Identifier: Apache-2.0
// Watch of directories for files that come or go, by inotify. It may be unavailable (its instances
// are limited per user) and it cannot see everything, such as a mount over the path: its user has
// to look from time to time.
#pragma once

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>

#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {

class DirectoryWatch {
 public:
  DirectoryWatch() : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

  // To be polled: readable when something has changed. -1 without inotify.
  int descriptor() const { return inotify_.number(); }

  // Watches the directory that is at `path` now, and no longer one that was there before. False if
  // that cannot be done. `opened`: the directory, which is watched then whatever is at the path;
  // -1: none.
  bool Watch(const std::string& path, int opened = -1) {
    const std::string place = opened < 0 ? path : "/proc/self/fd/" + std::to_string(opened);
    const int number = ::inotify_add_watch(inotify_.number(), place.c_str(), kEvents);
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

  // The directory is of no interest any more.
  void Forget(const std::string& path) {
    const auto known = numbers_.find(path);
    if (known == numbers_.end()) return;
    const int number = known->second;
    numbers_.erase(known);
    Unwatch(number);
  }

  // Paths given to Watch() where something has changed since the last call.
  std::set<std::string> TakeChanges() {
    std::set<std::string> changed;
    alignas(inotify_event) std::array<char, 65536> events;
    for (int reads = 0; reads < kMaxReads; ++reads) {
      const ssize_t length = ::read(inotify_.number(), events.data(), events.size());
      if (length <= 0) break;
      NoteEvents(std::span(events).first(static_cast<size_t>(length)), changed);
    }
    return changed;
  }

 private:
  // Names that come and go, permissions, sizes, and the end of the directory itself. A plugin
  // writes by a mapping, which makes no event; it locks its file before it gives it a size.
  static constexpr uint32_t kEvents = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM |
                                      IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF |
                                      IN_ONLYDIR;

  // Reads of 64 KiB per call. Together they exceed the kernel's default queue. The limit keeps a
  // process that creates events without end from blocking the collector.
  static constexpr int kMaxReads = 16;

  void Unwatch(int number) {
    const bool is_used =
        std::ranges::any_of(numbers_, [&](const auto& entry) { return entry.second == number; });
    if (!is_used)
      ::inotify_rm_watch(inotify_.number(), number);  // fails where the directory is gone already
  }
  void NoteEvents(std::span<const char> events, std::set<std::string>& changed) const {
    std::set<int> told;
    bool is_overflow = false;  // events were lost: anything may have changed
    while (events.size() >= sizeof(inotify_event)) {
      inotify_event event;
      std::memcpy(&event, events.data(), sizeof(event));
      is_overflow = is_overflow || (event.mask & IN_Q_OVERFLOW) != 0;
      told.insert(event.wd);
      events = events.subspan(sizeof(event) + event.len);
    }
    for (const auto& [path, number] : numbers_) {
      if (is_overflow || told.contains(number)) changed.insert(path);
    }
  }

  const FileDescriptor inotify_;
  // By path; two paths may lead to one directory, and have one number then.
  std::map<std::string, int> numbers_;
};

}  // namespace nccl_exporter::collector
