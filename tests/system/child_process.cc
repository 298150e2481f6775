// SPDX-License-Identifier: Apache-2.0
#include "tests/system/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace nccl_exporter {
namespace {

int ExitCode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

ChildProcess::ChildProcess(std::vector<std::string> command, std::map<std::string, std::string> environment) {
  std::string pattern = testing::TempDir() + "outputXXXXXX";
  const int output = mkstemp(pattern.data());
  output_path_ = pattern;
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(output);
}

ChildProcess::~ChildProcess() {
  if (IsRunning()) {
    kill(pid_, SIGKILL);
    Wait();
  }
  std::filesystem::remove(output_path_);
}

bool ChildProcess::IsRunning() {
  if (exit_code_ >= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  exit_code_ = ExitCode(status);
  return false;
}

void ChildProcess::Signal(int number) { kill(pid_, number); }

int ChildProcess::Wait() {
  int status = 0;
  if (exit_code_ < 0 && waitpid(pid_, &status, 0) == pid_) exit_code_ = ExitCode(status);
  return exit_code_;
}

std::string ChildProcess::Output() const {
  std::ifstream file(output_path_);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Finished RunToEnd(std::vector<std::string> command, std::map<std::string, std::string> environment) {
  ChildProcess child(std::move(command), std::move(environment));
  Finished finished;
  finished.exit_code = child.Wait();
  finished.output = child.Output();
  return finished;
}

ScratchDirectory::ScratchDirectory() {
  std::string pattern = testing::TempDir() + "scratchXXXXXX";
  path_ = mkdtemp(pattern.data());
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;  // a process that was killed a moment ago may still remove files of its own
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> ScratchDirectory::Files(const std::string& suffix) const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(suffix)) names.push_back(name);
  }
  return names;
}

void SleepMilliseconds(int milliseconds) {
  const timespec pause{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  nanosleep(&pause, nullptr);
}

}  // namespace nccl_exporter
