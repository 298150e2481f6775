// SPDX-License-Identifier: Apache-2.0
// A program under test: started with its output kept in a file, ended with the test.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace nccl_exporter {

class ChildProcess {
 public:
  // Starts the program with the test's environment and `environment` on top.
  ChildProcess(std::vector<std::string> command, std::map<std::string, std::string> environment = {});
  ~ChildProcess();  // kills what still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool IsRunning();
  void Signal(int number);
  // Waits for the end: the exit code, or 128 + the signal that ended it.
  int Wait();
  // Standard output and standard error so far.
  std::string Output() const;

 private:
  pid_t pid_ = -1;
  int exit_code_ = -1;
  std::string output_path_;
};

// Runs a program to its end.
struct Finished {
  int exit_code = -1;
  std::string output;
};
Finished RunToEnd(std::vector<std::string> command, std::map<std::string, std::string> environment = {});

// A directory that goes with the test.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }
  // Names of the files with this suffix.
  std::vector<std::string> Files(const std::string& suffix = "") const;

 private:
  std::string path_;
};

// Repeats `condition` until it holds or the time is over; says whether it held.
template <typename Condition>
bool Eventually(Condition condition, int seconds = 20);

void SleepMilliseconds(int milliseconds);

template <typename Condition>
bool Eventually(Condition condition, int seconds) {
  for (int i = 0; i < seconds * 50; ++i) {
    if (condition()) return true;
    SleepMilliseconds(20);
  }
  return condition();
}

}  // namespace nccl_exporter
