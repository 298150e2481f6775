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

// A decimal number in millionths: digits, and up to six after a point. No locale has a say in it.
bool ParseDecimal(const char* text, uint64_t least, uint64_t most, uint64_t* millionths) {
  constexpr int kMostDigits = 12;
  uint64_t value = 0;
  int digits = 0, decimals = -1;
  for (; *text != '\0'; ++text) {
    if (*text == '.' && decimals < 0) {
      decimals = 0;
    } else if (*text >= '0' && *text <= '9' && digits < kMostDigits && decimals < 6) {
      value = value * 10 + static_cast<uint64_t>(*text - '0');
      ++digits;
      if (decimals >= 0) ++decimals;
    } else {
      return false;
    }
  }
  for (int i = decimals < 0 ? 0 : decimals; i < 6; ++i) value *= 10;
  if (digits == 0 || value < least || value > most) return false;
  *millionths = value;
  return true;
}

bool ParseSampling(const char* text, Options* options) {
  if (std::strcmp(text, "always") == 0) return true;
  if (std::strcmp(text, "off") == 0) return options->kernel_timing = KernelTiming::kOff, true;
  uint64_t duty_ppm = 0;
  if (!ParseDecimal(text, 1000, 1'000'000, &duty_ppm)) return false;
  options->sampling_duty_ppm = static_cast<uint32_t>(duty_ppm);
  return options->sampling = Sampling::kWindows, true;
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
  const auto reject = [&](size_t row) { options.is_rejected[row] = true; };

  if (const char* text = given(0)) ParseWhole(text, 0, 1, &number) ? void(options.enable = number == 1) : reject(0);
  if (const char* text = given(1)) options.directory = text;
  if (const char* text = given(2); text != nullptr && !ParseKernelTiming(text, &options.kernel_timing)) reject(2);
  if (const char* text = given(3)) {
    ParseWhole(text, 1, 4095, &number) ? void(options.communicators = static_cast<uint32_t>(number)) : reject(3);
  }
  if (const char* text = given(4)) {
    ParseWhole(text, 1, 86400, &number) ? void(options.retention_ns = number * 1'000'000'000) : reject(4);
  }
  if (const char* text = given(5); text != nullptr && !ParseSampling(text, &options)) reject(5);
  if (const char* text = given(6)) {
    ParseDecimal(text, 100'000, 3600'000'000, &number) ? void(options.sampling_period_ns = number * 1000) : reject(6);
  }
  if (const char* text = given(7)) {
    ParseDecimal(text, 0, 86400'000'000, &number) ? void(options.sampling_learning_ns = number * 1000) : reject(7);
  }
  if (const char* text = given(8)) {
    ParseWhole(text, 0, 1, &number) ? void(options.kernel_phases = number == 1) : reject(8);
  }
  return options;
}

}  // namespace nccl_exporter
