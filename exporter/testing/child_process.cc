// SPDX-License-Identifier: Apache-2.0
#include "exporter/testing/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "exporter/testing/eventually.h"

namespace nccl_exporter::exporter {
namespace {

constexpr char kOutput[] = "output";
constexpr char kError[] = "error";

int ExitCode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

// Output goes to files. A full pipe would stop a program whose output is not read.
ChildProcess::ChildProcess(std::vector<std::string> command,
                           const std::map<std::string, std::string>& environment) {
  const int output =
      open(directory_.File(kOutput).c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  const int error =
      open(directory_.File(kError).c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    dup2(output, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(output);
  close(error);
}

ChildProcess::~ChildProcess() {
  if (!IsRunning()) return;
  kill(pid_, SIGKILL);
  Wait();
}

bool ChildProcess::IsRunning() {
  int status = 0;
  if (!exit_code_ && waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = ExitCode(status);
  return !exit_code_;
}

void ChildProcess::Signal(int number) const { kill(pid_, number); }

int ChildProcess::Wait() {
  int status = 0;
  if (!exit_code_ && waitpid(pid_, &status, 0) == pid_) exit_code_ = ExitCode(status);
  return *exit_code_;
}

std::string ChildProcess::ReadErrorLine() {
  for (;;) {
    // Before reading, so that everything written until then is read.
    const bool was_running = IsRunning();
    const std::string text = ErrorOutput();
    const size_t end = text.find('\n');
    if (end != std::string::npos || !was_running) {
      error_read_ += end == std::string::npos ? text.size() : end + 1;
      return text.substr(0, end);
    }
    SleepMilliseconds(5);
  }
}

std::string ChildProcess::Output() const { return TextOf(directory_.File(kOutput)); }

std::string ChildProcess::ErrorOutput() const {
  return TextOf(directory_.File(kError)).substr(error_read_);
}

Finished RunToEnd(std::vector<std::string> command,
                  const std::map<std::string, std::string>& environment) {
  ChildProcess child(std::move(command), environment);
  const int exit_code = child.Wait();
  return {exit_code, child.AllOutput()};
}

}  // namespace nccl_exporter::exporter
