// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "plugin/identity/identity.h"

namespace nccl_exporter::plugin {
namespace {

constexpr long long kMostMilliCpus = 1000LL << 16;

// Numbers that the file ROOT/sys/fs/cgroup/CGROUP/NAME begins with, up to two; 0 if it cannot be
// read.
int ReadNumbers(const char* root, const char* cgroup, const char* name, long long (&numbers)[2]) {
  char path[4096];
  const int length =
      std::snprintf(path, sizeof(path), "%s/sys/fs/cgroup/%s/%s", root, cgroup, name);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) return 0;
  FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  const int count = std::fscanf(file, "%lld %lld", &numbers[0], &numbers[1]);
  std::fclose(file);
  return count;
}

uint32_t QuotaIn(const char* root, const char* cgroup) {
  long long quota_us[2]{}, period_us[2]{};
  if (ReadNumbers(root, cgroup, "cpu.max", quota_us) == 2) {
    period_us[0] = quota_us[1];
  } else {
    ReadNumbers(root, cgroup, "cpu.cfs_quota_us", quota_us);
    ReadNumbers(root, cgroup, "cpu.cfs_period_us", period_us);
  }
  if (quota_us[0] <= 0 || period_us[0] <= 0) return 0;
  return static_cast<uint32_t>(std::min(quota_us[0] * 1000 / period_us[0], kMostMilliCpus));
}

// The path of the process's own cgroup below the mount; empty where it is not known. Lines are
// NUMBER:CONTROLLERS:PATH, and that of cgroup v2 has the number 0 and no controllers.
void ReadOwnCgroup(const char* root, char (&cgroup)[2048]) {
  cgroup[0] = '\0';
  char path[256];
  std::snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
  FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return;
  char line[2048];
  while (std::fgets(line, sizeof(line), file) != nullptr && cgroup[0] == '\0')
    std::sscanf(line, "0::/%2047[^\n]", cgroup);
  std::fclose(file);
}

uint32_t Affinity() {
  alignas(unsigned long) cpu_set_t set[8];  // 8192 CPUs
  return sched_getaffinity(0, sizeof(set), set) == 0
             ? static_cast<uint32_t>(CPU_COUNT_S(sizeof(set), set))
             : 0;
}

}  // namespace

CpuAllowance ReadCpuAllowance(const char* root) {
  char own[2048];
  ReadOwnCgroup(root, own);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  CpuAllowance allowance{.affinity = Affinity(),
                         .online = online > 0 ? static_cast<uint32_t>(online) : 0};
  for (const char* cgroup : {static_cast<const char*>(own), "", "cpu"}) {
    if (allowance.quota_milli == 0) allowance.quota_milli = QuotaIn(root, cgroup);
  }
  return allowance;
}

uint32_t MilliCpusPerRank(const CpuAllowance& allowance, const LocalRanks& ranks) {
  uint32_t milli = std::numeric_limits<uint32_t>::max();
  // Under a quota below a thousandth per rank nothing is left.
  const auto share = [&milli](uint32_t all_milli, uint32_t sharers) {
    if (all_milli != 0) milli = std::min(milli, std::max(all_milli / sharers, 1u));
  };
  share(allowance.affinity * 1000, ranks.in_process);
  share(allowance.online * 1000, ranks.on_node);
  share(allowance.quota_milli, ranks.on_node);
  return milli;
}

}  // namespace nccl_exporter::plugin
