// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>

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

}  // namespace

std::string WriteNewFile(const std::string& path, std::string_view content) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return path + (S_ISLNK(status.st_mode)
                       ? ": it is a link, which is not followed"
                       : ": it is no regular file; without -o the trace goes to standard output");
  }
  const SignalsWait signals_wait;
  const std::string beside = path + '.' + std::to_string(std::random_device{}());
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return path + ": " + std::strerror(errno);
  int reason = WriteAll(file, content) ? 0 : errno;
  if (::close(file) != 0 && reason == 0) reason = errno;
  if (reason == 0 && ::rename(beside.c_str(), path.c_str()) != 0) reason = errno;
  if (reason == 0) return "";
  ::unlink(beside.c_str());
  return path + ": " + std::strerror(reason);
}

}  // namespace nccl_exporter::exporter
