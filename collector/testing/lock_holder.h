// SPDX-License-Identifier: Apache-2.0
// LockHolder, a child process that holds a segment's write lock, for tests: a live training process
// to the collector.
#pragma once

#include <sys/types.h>

#include <string>

namespace nccl_exporter::collector {

class LockHolder {
 public:
  // Returns when the child holds the locks of the files, which must exist.
  explicit LockHolder(const std::string& path, const std::string& other_path = "");
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;
  ~LockHolder() { Kill(); }

  // SIGSTOP and SIGCONT; they return when the child has stopped, or goes on.
  void Stop();
  void Continue();
  // The child goes on without the lock of the first file; returns when it is gone.
  void LoseLock();
  pid_t pid() const { return child_; }
  // SIGKILL; returns when the child is gone.
  void Kill();

 private:
  std::string path_;
  pid_t child_ = -1;
};

}  // namespace nccl_exporter::collector
