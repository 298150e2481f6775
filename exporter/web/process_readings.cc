// SPDX-License-Identifier: Apache-2.0
// Readings of /proc/self, in the base units of Prometheus.
#include "exporter/web/process_readings.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace nccl_exporter::exporter {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::optional<double> CpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// Field of /proc/self/stat in units of `unit`. It is counted from 1 as in proc(5), 4 and above: the
// name in field 2 may hold blanks, and field 3 is a letter.
std::optional<double> StatField(int field, double unit) {
  std::ifstream file("/proc/self/stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int i = 3; i < field; ++i) fields >> skipped;
  double value = 0;
  return fields >> value ? std::optional(value * unit) : std::nullopt;
}

std::optional<double> OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error) return std::nullopt;
  return static_cast<double>(std::distance(begin(entries), end(entries)) -
                             1);  // one is this listing's own
}

std::optional<double> MaxDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::optional<double> ProcessReading(Metric metric) {
  switch (metric) {
    case Metric::kProcessCpu:
      return CpuSeconds();
    case Metric::kProcessResidentMemory:
      return StatField(24, static_cast<double>(sysconf(_SC_PAGESIZE)));
    case Metric::kProcessVirtualMemory:
      return StatField(23, 1);
    case Metric::kProcessOpenDescriptors:
      return OpenDescriptors();
    case Metric::kProcessMaxDescriptors:
      return MaxDescriptors();
    case Metric::kProcessThreads:
      return StatField(20, 1);
    default:
      return std::nullopt;
  }
}

}  // namespace nccl_exporter::exporter
