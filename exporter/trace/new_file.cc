// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nccl_exporter::exporter {
namespace {

// SIGINT and its like wait until the file is whole, or gone.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_{};
};

bool WriteAll(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// As a new file of this process has it.
mode_t ModeOfNewFiles() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

std::string WriteNewFile(const std::string& path, std::string_view content) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return path + (S_ISLNK(status.st_mode)
                       ? ": it is a link, which is not followed"
                       : ": it is no regular file; without -o the trace goes to standard output");
  }
  const SignalsWait signals_wait;
  std::string beside = path + ".XXXXXX";
  const int file = ::mkostemp(beside.data(), O_CLOEXEC);
  if (file < 0) return path + ": " + std::strerror(errno);
  bool is_written = ::fchmod(file, ModeOfNewFiles()) == 0 && WriteAll(file, content);
  int reason = errno;
  if (::close(file) != 0 && is_written) {
    is_written = false;
    reason = errno;
  }
  if (is_written && ::rename(beside.c_str(), path.c_str()) == 0) return "";
  if (is_written) reason = errno;
  ::unlink(beside.c_str());
  return path + ": " + std::strerror(reason);
}

}  // namespace nccl_exporter::exporter
