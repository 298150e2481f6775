// SPDX-License-Identifier: Apache-2.0
#include "plugin/options.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace nccl_exporter {
namespace {

bool ParseWhole(const char* text, uint64_t least, uint64_t most, uint64_t* value) {
  if (text[0] < '0' || text[0] > '9') return false;
  char* end = nullptr;
  errno = 0;
  const unsigned long long parsed = std::strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || parsed < least || parsed > most) return false;
  *value = parsed;
  return true;
}

bool ParseKernelTiming(const char* text, KernelTiming* value) {
  if (std::strcmp(text, "auto") == 0) return *value = KernelTiming::kAuto, true;
  if (std::strcmp(text, "on") == 0) return *value = KernelTiming::kOn, true;
  if (std::strcmp(text, "off") == 0) return *value = KernelTiming::kOff, true;
  return false;
}

}  // namespace

Options ReadOptions(const char* (*get)(const char* name)) {
  Options options;
  uint64_t number = 0;
  const auto given = [&](size_t row) -> const char* {
    const char* text = get(kOptions[row].name);
    return text != nullptr && text[0] != '\0' ? text : nullptr;
  };
  const auto reject = [&](size_t row) {
    if (options.rejected_name == nullptr) options.rejected_name = kOptions[row].name;
  };

  if (const char* text = given(0)) ParseWhole(text, 0, 1, &number) ? void(options.enable = number == 1) : reject(0);
  if (const char* text = given(1)) options.directory = text;
  if (const char* text = given(2); text != nullptr && !ParseKernelTiming(text, &options.kernel_timing)) reject(2);
  if (const char* text = given(3)) {
    ParseWhole(text, 1, 4095, &number) ? void(options.communicators = static_cast<uint32_t>(number)) : reject(3);
  }
  if (const char* text = given(4)) {
    ParseWhole(text, 1, 86400, &number) ? void(options.retention_ns = number * 1'000'000'000) : reject(4);
  }
  return options;
}

}  // namespace nccl_exporter
