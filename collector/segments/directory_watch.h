// SPDX-License-Identifier: Apache-2.0
// Tells in which directories files have come or gone, by inotify. It may be unavailable (its
// instances are limited per user) and it cannot see everything, such as a mount over the path:
// whoever uses it looks for itself from time to time.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>

#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {

class DirectoryWatch {
 public:
  DirectoryWatch();

  // To be polled: readable when something has changed. -1 without inotify.
  int descriptor() const { return inotify_.number(); }

  // Watches the directory that is at `path` now, and no longer one that was there before. False if
  // that cannot be done.
  bool Watch(const std::string& path);

  // Paths given to Watch() where something has changed since the last call.
  std::set<std::string> TakeChanges();

 private:
  void Unwatch(int number);
  void NoteEvents(std::span<const char> events, std::set<std::string>& changed) const;

  const FileDescriptor inotify_;
  // By path; two paths may lead to one directory, and have one number then.
  std::map<std::string, int> numbers_;
};

}  // namespace nccl_exporter::collector
