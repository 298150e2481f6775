// SPDX-License-Identifier: Apache-2.0
// A point in time for people, in UTC.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <ctime>
#include <string>

namespace nccl_exporter::exporter {

// "2023-11-14T22:13:20.000000000Z"; "unknown" for 0 and what no calendar has.
inline std::string TimeText(int64_t realtime_ns) {
  constexpr int64_t kNanoseconds = 1000000000;
  const std::time_t seconds = realtime_ns / kNanoseconds;
  std::tm utc{};
  if (realtime_ns <= 0 || gmtime_r(&seconds, &utc) == nullptr) return "unknown";
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     realtime_ns % kNanoseconds);
}

}  // namespace nccl_exporter::exporter
