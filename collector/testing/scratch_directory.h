// SPDX-License-Identifier: Apache-2.0
// A directory of its own for a test, gone with the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace nccl_exporter {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "collector-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace nccl_exporter
