// SPDX-License-Identifier: Apache-2.0
// States of the watched segment directories, for the page of a node without processes. Opens each
// directory, and changes nothing. Any thread may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nccl_exporter::exporter {

struct WatchedDirectory {
  std::string path;
  std::string_view state;  // "readable", "missing", "not_a_directory" or "unreadable"
  std::string detail;  // text of errno, or how many directories a pattern stands for; may be empty
};

// By the order of `paths`, those of --segment.dir. A path that ends with "-*" stands for the
// directories of users: it is missing while there are none.
std::vector<WatchedDirectory> DirectoryStates(const std::vector<std::string>& paths);

}  // namespace nccl_exporter::exporter
