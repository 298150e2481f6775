// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/new_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
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
  std::FILE* const file = std::fopen(beside.c_str(), "wxe");  // a new one
  if (file == nullptr) return path + ": " + std::strerror(errno);
  int reason = std::fwrite(content.data(), 1, content.size(), file) == content.size() ? 0 : errno;
  if (std::fclose(file) != 0 && reason == 0) reason = errno;
  if (reason == 0 && ::rename(beside.c_str(), path.c_str()) != 0) reason = errno;
  if (reason == 0) return "";
  ::unlink(beside.c_str());
  return path + ": " + std::strerror(reason);
}

}  // namespace nccl_exporter::exporter
