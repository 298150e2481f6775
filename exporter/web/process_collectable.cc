// SPDX-License-Identifier: Apache-2.0
// Readings of /proc/self, in the base units of Prometheus.
#include "exporter/web/process_collectable.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "proto/metric_catalogue.h"

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

// Field of /proc/self/stat, counted from 1 as in proc(5); 3 and above, since the name in field 2
// may hold blanks.
std::optional<double> StatField(int field) {
  std::ifstream file("/proc/self/stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string text;
  for (int i = 3; i <= field; ++i) fields >> text;
  double value = 0;
  if (!(std::istringstream(text) >> value)) return std::nullopt;
  return value;
}

std::optional<double> Threads() { return StatField(20); }

std::optional<double> VirtualBytes() { return StatField(23); }

std::optional<double> ResidentBytes() {
  const std::optional<double> pages = StatField(24);
  if (!pages) return std::nullopt;
  return *pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::optional<double> StartSeconds() {
  const std::optional<double> ticks_after_boot = StatField(22);
  std::ifstream file("/proc/stat");
  for (std::string line; ticks_after_boot && std::getline(file, line);) {
    double boot_seconds = 0;
    std::string key;
    if (std::istringstream(line) >> key >> boot_seconds && key == "btime") {
      return boot_seconds + *ticks_after_boot / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
  }
  return std::nullopt;
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

struct Reading {
  Metric metric;
  std::optional<double> (*value)();
};

constexpr Reading kReadings[] = {
    {Metric::kProcessCpu, CpuSeconds},
    {Metric::kProcessResidentMemory, ResidentBytes},
    {Metric::kProcessVirtualMemory, VirtualBytes},
    {Metric::kProcessOpenDescriptors, OpenDescriptors},
    {Metric::kProcessMaxDescriptors, MaxDescriptors},
    {Metric::kProcessStartTime, StartSeconds},
    {Metric::kProcessThreads, Threads},
};

}  // namespace

std::vector<prometheus::MetricFamily> ProcessCollectable::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  for (const Reading& reading : kReadings) {
    const std::optional<double> value = reading.value();
    if (!value) continue;
    const MetricRow& row = RowOf(reading.metric);
    const bool is_counter = row.type == MetricType::kCounter;
    prometheus::ClientMetric metric;
    (is_counter ? metric.counter.value : metric.gauge.value) = *value;
    families.push_back(
        {std::string(row.name),
         std::string(row.help),
         is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
         {metric}});
  }
  return families;
}

}  // namespace nccl_exporter::exporter
