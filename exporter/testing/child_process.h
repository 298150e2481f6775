// SPDX-License-Identifier: Apache-2.0
// ChildProcess, a program under test: its output, its exit code and signals to it.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter {

class ChildProcess {
 public:
  // Starts the program with the test's environment and `environment` on top. A program that cannot
  // be run ends with 127.
  explicit ChildProcess(std::vector<std::string> command,
                        const std::map<std::string, std::string>& environment = {});
  ~ChildProcess();  // kills it if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool IsRunning();
  void Signal(int number) const;
  // Waits for the end. The exit code, or minus the signal that ended it.
  int Wait();

  // The next line of standard error, without its line feed; empty at the end.
  std::string ReadErrorLine();
  // Standard output so far.
  std::string Output() const;
  // Standard error so far, without the lines that were read.
  std::string ErrorOutput() const;
  // Both, for a message.
  std::string AllOutput() const { return Output() + ErrorOutput(); }

 private:
  const collector::ScratchDirectory directory_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
  size_t error_read_ = 0;
};

// Runs a program to its end.
struct Finished {
  int exit_code = -1;
  std::string output;  // and what it wrote to standard error
};
Finished RunToEnd(std::vector<std::string> command,
                  const std::map<std::string, std::string>& environment = {});

}  // namespace nccl_exporter::exporter
