// SPDX-License-Identifier: Apache-2.0
// SeenPath, a path as a process sees it, and how root opens what such a path leads to. Any thread.
//
// The process chooses the path, and may have put anything there: a link to a file of the node, a
// device, a FIFO. So links are followed inside the root of the process. Nothing but a regular file
// is opened: opening alone arms a watchdog, rewinds a tape, or waits forever.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

namespace nccl_exporter::exporter {

struct SeenPath {
  SeenPath(std::string own_path) : path(std::move(own_path)) {}  // NOLINT: a path is one
  SeenPath(const char* own_path) : path(own_path) {}             // NOLINT
  SeenPath(std::string process_root, std::string its_path)
      : root(std::move(process_root)), path(std::move(its_path)) {}

  std::string Text() const { return root + path; }

  std::string root;  // the directory that is / for the process, /proc/PID/root; empty: our own
  std::string path;
};

// A descriptor that is closed with its last copy, and the status of its file.
class OpenedFile {
 public:
  OpenedFile() = default;
  // Takes over the descriptor; a negative one is none.
  explicit OpenedFile(int number);

  bool is_open() const { return number_ != nullptr; }
  int number() const { return *number_; }
  const struct stat& status() const { return status_; }

 private:
  std::shared_ptr<const int> number_;
  struct stat status_ {};
};

// The file to which the path leads, by a descriptor that reads and waits for nothing (O_PATH).
// Without one, errno says why.
OpenedFile Find(const SeenPath& path);

// That file for reading, if it is a regular file; else `fault` says why not.
OpenedFile OpenRegular(const SeenPath& path, std::string& fault);

}  // namespace nccl_exporter::exporter
