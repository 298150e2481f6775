// SPDX-License-Identifier: Apache-2.0
// The child makes system calls only. It may be forked from a process with threads, whose locks it
// would wait for.
#include "collector/testing/lock_holder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace nccl_exporter::collector {
namespace {

int first_file = -1;  // of the child

// As a job that closes descriptors which it does not know.
void LoseFirstLock(int) { ::close(::dup(first_file)); }

int Lock(const char* path) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  return file >= 0 && ::fcntl(file, F_SETLK, &lock) == 0 ? file : -1;
}

[[noreturn]] void HoldLock(const char* path, const char* other_path, int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGUSR1, LoseFirstLock);
  first_file = Lock(path);
  if (first_file < 0 || (*other_path != '\0' && Lock(other_path) < 0) || ::write(ready, "", 1) != 1)
    ::_exit(1);
  while (true) ::pause();
}

}  // namespace

LockHolder::LockHolder(const std::string& path, const std::string& other_path) : path_(path) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) std::abort();
  child_ = ::fork();
  if (child_ == 0) HoldLock(path.c_str(), other_path.c_str(), pipe[1]);
  ::close(pipe[1]);
  char ready = 0;
  const ssize_t length = ::read(pipe[0], &ready, 1);
  ::close(pipe[0]);
  if (child_ < 0 || length != 1) std::abort();
}

void LockHolder::LoseLock() {
  ::kill(child_, SIGUSR1);
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct flock lock {};
  do {
    lock = {};
    lock.l_type = F_RDLCK;
    lock.l_whence = SEEK_SET;
    if (file < 0 || ::fcntl(file, F_GETLK, &lock) != 0) std::abort();
  } while (lock.l_type != F_UNLCK && ::usleep(1000) == 0);
  ::close(file);
}

void LockHolder::Stop() {
  ::kill(child_, SIGSTOP);
  ::waitpid(child_, nullptr, WUNTRACED);
}

void LockHolder::Continue() {
  ::kill(child_, SIGCONT);
  ::waitpid(child_, nullptr, WCONTINUED);
}

void LockHolder::Kill() {
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  child_ = -1;
}

}  // namespace nccl_exporter::collector
