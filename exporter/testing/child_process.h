// SPDX-License-Identifier: Apache-2.0
// A program under test: its output, its exit code and signals to it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace nccl_exporter {

class ChildProcess {
 public:
  // Standard output and standard error are collected apart.
  explicit ChildProcess(const std::vector<std::string>& command);
  ~ChildProcess();  // kills it if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line of standard error, without its line feed; empty at the end.
  std::string ReadErrorLine();
  void Signal(int signal) const;

  // Waits for the end. The exit code, or minus the signal that ended it.
  int Wait();
  // What is left unread; after Wait().
  std::string Output() const;
  std::string ErrorOutput() const;

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int error_ = -1;
};

}  // namespace nccl_exporter
