// SPDX-License-Identifier: Apache-2.0
// ScratchDirectory, a directory for one test, removed at its end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace nccl_exporter::collector {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "nccl-exporter-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    // A process that was killed a moment ago may still remove files of its own.
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Names of the files with this suffix.
  std::vector<std::string> Files(const std::string& suffix = "") const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename();
      if (name.ends_with(suffix)) names.push_back(name);
    }
    return names;
  }

 private:
  std::string path_;
};

}  // namespace nccl_exporter::collector
