// SPDX-License-Identifier: Apache-2.0
// Faults that the soak found: printed at once, and counted.
#pragma once

#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

namespace nccl_exporter::soak {

// Any thread.
class Findings {
 public:
  void Add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (texts_.size() < kPrinted) {
      printf("FOUND: %s\n", text.c_str());
      fflush(stdout);
    }
    texts_.push_back(text);
  }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return texts_.size();
  }
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  static constexpr size_t kPrinted = 100;

  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace nccl_exporter::soak
