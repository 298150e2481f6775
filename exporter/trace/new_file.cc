// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/new_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

namespace nccl_exporter::exporter {

std::string WriteNewFile(const std::string& path, std::string_view content) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return path + (S_ISLNK(status.st_mode)
                       ? ": it is a link, which is not followed"
                       : ": it is no regular file");
  }
  // SIGINT and its like wait until the file is whole, or gone.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto restore = [](const sigset_t* mask) { pthread_sigmask(SIG_SETMASK, mask, nullptr); };
  const std::unique_ptr<sigset_t, decltype(restore)> signals_wait(&before, restore);
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
