// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/id_file.h"

#include <time.h>

#include <cstdio>

#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr long kPollNs = 5'000'000;
constexpr int kPolls = 60 * 200;

void LeaveId(const std::string& path, const ncclUniqueId& id) {
  const std::string unfinished = path + ".part";
  FILE* file = fopen(unfinished.c_str(), "w");
  Require(file != nullptr && fwrite(&id, sizeof(id), 1, file) == 1 && fclose(file) == 0,
          unfinished.c_str());
  Require(rename(unfinished.c_str(), path.c_str()) == 0, path.c_str());
}

ncclUniqueId AwaitId(const std::string& path) {
  ncclUniqueId id;
  for (int poll = 0; poll < kPolls; ++poll) {
    if (FILE* file = fopen(path.c_str(), "r"); file != nullptr) {
      Require(fread(&id, sizeof(id), 1, file) == 1, path.c_str());
      fclose(file);
      return id;
    }
    const timespec pause{0, kPollNs};
    nanosleep(&pause, nullptr);
  }
  Require(false, path.c_str());
  return id;
}

}  // namespace

ncclUniqueId MeetBy(const std::string& path, int rank) {
  if (rank != 0) return AwaitId(path);
  ncclUniqueId id;
  Require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  LeaveId(path, id);
  return id;
}

}  // namespace nccl_exporter
