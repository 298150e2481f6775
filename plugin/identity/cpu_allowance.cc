// SPDX-License-Identifier: Apache-2.0
#include "plugin/identity/cpu_allowance.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace nccl_exporter::plugin {
namespace {

constexpr size_t kMostBytes = 4096;  // of a path, and of what is read of a file
constexpr int kMostLevels = 64;      // of cgroups
constexpr uint32_t kMostCpus = 1 << 16;

struct Path {
  char text[kMostBytes];

  // False if it does not fit.
  bool Join(const char* directory, const char* name, const char* separator = "/") {
    const int length = std::snprintf(text, sizeof(text), "%s%s%s", directory, separator, name);
    return length >= 0 && static_cast<size_t>(length) < sizeof(text);
  }
};

// What fits of the file, as text; false if it cannot be read.
bool ReadText(const char* directory, const char* name, char (&text)[kMostBytes]) {
  Path path;
  if (!path.Join(directory, name)) return false;
  const int file = open(path.text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = read(file, text, kMostBytes - 1);
  close(file);
  if (bytes < 0) return false;
  text[bytes] = '\0';
  return true;
}

// CPUs of a list as the kernel writes it: "0-3,8". 0 if it is empty or not understood.
uint32_t CountCpus(const char* list) {
  uint32_t count = 0;
  while (*list >= '0' && *list <= '9') {
    char* end = nullptr;
    const unsigned long first = std::strtoul(list, &end, 10);
    unsigned long last = first;
    if (*end == '-') last = std::strtoul(end + 1, &end, 10);
    if (last < first || last >= kMostCpus) return 0;
    count += static_cast<uint32_t>(last - first + 1);
    if (*end != ',') break;
    list = end + 1;
  }
  return count;
}

uint32_t MilliCpus(long long quota_us, long long period_us) {
  if (quota_us <= 0 || period_us <= 0) return 0;
  return static_cast<uint32_t>(
      std::min<long long>(quota_us * 1000 / period_us, kMostCpus * 1000LL));
}

uint32_t Least(uint32_t one, uint32_t other) {
  return one == 0 || (other != 0 && other < one) ? other : one;
}

uint32_t QuotaIn(const char* directory) {
  char text[kMostBytes];
  long long quota_us = 0, period_us = 0;
  if (ReadText(directory, "cpu.max", text)) {  // cgroup v2: "QUOTA PERIOD" or "max PERIOD"
    return std::sscanf(text, "%lld %lld", &quota_us, &period_us) == 2
               ? MilliCpus(quota_us, period_us)
               : 0;
  }
  if (!ReadText(directory, "cpu.cfs_quota_us", text)) return 0;
  quota_us = std::atoll(text);
  return ReadText(directory, "cpu.cfs_period_us", text) ? MilliCpus(quota_us, std::atoll(text)) : 0;
}

uint32_t CpusetIn(const char* directory) {
  char text[kMostBytes];
  for (const char* name : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"}) {
    if (!ReadText(directory, name, text)) continue;
    if (const uint32_t cpus = CountCpus(text)) return cpus;
  }
  return 0;
}

// From the process's own cgroup up to the mount. A level that is not mounted here has no files.
void ReadHierarchy(const char* root, const char* mount, const char* cgroup,
                   CpuAllowance* allowance) {
  Path top, directory;
  if (!top.Join(root, mount, "") || !directory.Join(top.text, cgroup, "")) return;
  const size_t top_length = std::strlen(top.text);
  for (int level = 0; level < kMostLevels; ++level) {
    allowance->quota_milli = Least(allowance->quota_milli, QuotaIn(directory.text));
    if (allowance->shared == 0) allowance->shared = CpusetIn(directory.text);
    char* slash = std::strrchr(directory.text, '/');
    if (slash == nullptr || static_cast<size_t>(slash - directory.text) < top_length) return;
    *slash = '\0';
  }
}

bool Lists(const char* controllers, const char* controller) {
  const size_t length = std::strlen(controller);
  for (const char* at = controllers; at != nullptr; at = std::strchr(at, ',')) {
    if (*at == ',') ++at;
    if (std::strncmp(at, controller, length) == 0 && (at[length] == ',' || at[length] == '\0'))
      return true;
  }
  return false;
}

// Lines are NUMBER:CONTROLLERS:PATH; cgroup v2 has the number 0 and no controllers.
void ReadCgroups(const char* root, CpuAllowance* allowance) {
  char text[kMostBytes];
  if (!ReadText(root, "proc/self/cgroup", text)) return;
  char* rest = nullptr;
  for (char* line = strtok_r(text, "\n", &rest); line != nullptr;
       line = strtok_r(nullptr, "\n", &rest)) {
    char* controllers = std::strchr(line, ':');
    char* cgroup = controllers != nullptr ? std::strchr(controllers + 1, ':') : nullptr;
    if (cgroup == nullptr) continue;
    *controllers++ = '\0';
    *cgroup++ = '\0';
    if (controllers[0] == '\0') {
      ReadHierarchy(root, "/sys/fs/cgroup", cgroup, allowance);
      ReadHierarchy(root, "/sys/fs/cgroup/unified", cgroup, allowance);
    }
    if (Lists(controllers, "cpu")) ReadHierarchy(root, "/sys/fs/cgroup/cpu", cgroup, allowance);
    if (Lists(controllers, "cpuset"))
      ReadHierarchy(root, "/sys/fs/cgroup/cpuset", cgroup, allowance);
  }
}

uint32_t Affinity() {
  alignas(unsigned long) cpu_set_t set[8];  // 8192 CPUs
  return sched_getaffinity(0, sizeof(set), set) == 0
             ? static_cast<uint32_t>(CPU_COUNT_S(sizeof(set), set))
             : 0;
}

}  // namespace

CpuAllowance ReadCpuAllowance(const char* root) {
  CpuAllowance allowance;
  allowance.affinity = Affinity();
  ReadCgroups(root, &allowance);
  if (allowance.shared == 0) {
    char text[kMostBytes];
    if (ReadText(root, "sys/devices/system/cpu/online", text)) allowance.shared = CountCpus(text);
  }
  return allowance;
}

uint32_t MilliCpusPerRank(const CpuAllowance& allowance, const LocalRanks& ranks) {
  uint32_t milli =
      Least(allowance.affinity * 1000 / ranks.in_process, allowance.shared * 1000 / ranks.on_node);
  // Under a quota below a thousandth per rank nothing is left.
  if (allowance.quota_milli != 0)
    milli = Least(milli, std::max(allowance.quota_milli / ranks.on_node, 1u));
  return milli != 0 ? milli : std::numeric_limits<uint32_t>::max();
}

}  // namespace nccl_exporter::plugin
