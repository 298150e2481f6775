// SPDX-License-Identifier: Apache-2.0
// DescriptorShortage, which makes open() fail for tests. Permissions would not stop a test that
// runs as root.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace nccl_exporter::collector {

// While it exists, the process can open at most `free` further descriptors.
class DescriptorShortage {
 public:
  explicit DescriptorShortage(int free) {
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next + free);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  DescriptorShortage(const DescriptorShortage&) = delete;
  DescriptorShortage& operator=(const DescriptorShortage&) = delete;
  ~DescriptorShortage() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace nccl_exporter::collector
