// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/id_file.h"

#include <time.h>

#include <cstdio>
#include <fstream>

#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr long kPollNs = 5'000'000;
constexpr int kPolls = 60 * 200;

}  // namespace

void LeaveId(const std::string& path, const ncclUniqueId& id) {
  const std::string unfinished = path + ".part";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.write(id.internal, sizeof(id.internal));
    file.close();
    Require(static_cast<bool>(file), unfinished.c_str());
  }
  Require(std::rename(unfinished.c_str(), path.c_str()) == 0, path.c_str());
}

ncclUniqueId AwaitId(const std::string& path) {
  ncclUniqueId id;
  for (int poll = 0; poll < kPolls; ++poll) {
    if (std::ifstream file(path, std::ios::binary); file.read(id.internal, sizeof(id.internal)))
      return id;
    const timespec pause{0, kPollNs};
    nanosleep(&pause, nullptr);
  }
  Require(false, path.c_str());
  return id;
}

}  // namespace nccl_exporter
