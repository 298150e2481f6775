// SPDX-License-Identifier: Apache-2.0
// Children by posix_spawn and pipes.
#include "exporter/testing/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace nccl_exporter {
namespace {

std::string ReadAll(int descriptor) {
  std::string text;
  char part[4096];
  for (ssize_t got = read(descriptor, part, sizeof part); got > 0; got = read(descriptor, part, sizeof part)) {
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command) {
  int output[2];
  int error[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int failure = posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  close(error[1]);
  output_ = output[0];
  error_ = error[0];
  if (failure != 0) throw std::runtime_error("cannot run " + command[0]);
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
  close(output_);
  close(error_);
}

std::string ChildProcess::ReadErrorLine() {
  std::string line;
  for (char character = 0; read(error_, &character, 1) == 1 && character != '\n';) line += character;
  return line;
}

void ChildProcess::Signal(int signal) const { kill(pid_, signal); }

int ChildProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string ChildProcess::Output() const { return ReadAll(output_); }

std::string ChildProcess::ErrorOutput() const { return ReadAll(error_); }

}  // namespace nccl_exporter
