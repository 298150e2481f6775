// SPDX-License-Identifier: Apache-2.0
// Reads /proc.
#include "tests/soak/process_watch.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace nccl_exporter::soak {

Holdings HoldingsOf(pid_t process, double now_seconds) {
  Holdings holdings{.seconds = now_seconds};
  const std::string directory = "/proc/" + std::to_string(process);
  std::ifstream status(directory + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) holdings.resident_kib = std::stod(line.substr(6));
    if (line.starts_with("Threads:")) holdings.threads = std::stod(line.substr(8));
  }
  std::ifstream stat(directory + "/stat");
  std::string fields;
  std::getline(stat, fields);
  if (const size_t name_end = fields.rfind(')'); name_end != std::string::npos) {
    constexpr int kBetween = 11;  // fields after the name and before utime
    std::istringstream rest(fields.substr(name_end + 1));
    std::string skipped;
    for (int i = 0; i < kBetween; ++i) rest >> skipped;
    double user = 0;
    double system = 0;
    rest >> user >> system;
    holdings.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::error_code gone;
  for (auto it = std::filesystem::directory_iterator(directory + "/fd", gone);
       it != std::filesystem::directory_iterator(); it.increment(gone)) {
    ++holdings.descriptors;
  }
  return holdings;
}

Growth GrowthOf(const std::vector<Holdings>& samples, double Holdings::*what) {
  Growth growth;
  if (samples.empty()) return growth;
  const double start = samples.front().seconds;
  const double third = (samples.back().seconds - start) / 3;
  double n = 0;
  double x = 0;
  double y = 0;
  double xx = 0;
  double xy = 0;
  for (const Holdings& sample : samples) {
    const double minutes = (sample.seconds - start - third) / 60;
    if (minutes < 0) continue;
    const double value = sample.*what;
    double& maximum = sample.seconds - start <= 2 * third ? growth.second_third : growth.last_third;
    maximum = std::max(maximum, value);
    n += 1;
    x += minutes;
    y += value;
    xx += minutes * minutes;
    xy += minutes * value;
  }
  if (const double spread = n * xx - x * x; spread > 0)
    growth.slope_per_minute = (n * xy - x * y) / spread;
  return growth;
}

}  // namespace nccl_exporter::soak
