// SPDX-License-Identifier: Apache-2.0
// The flags of nccl-exporter, one row each: what it is called, what it takes, and where its value goes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "exporter/options.h"

namespace nccl_exporter {

enum class FlagTakes : uint8_t {
  kValue,
  kValues,  // given several times; the default is a list with commas
  kNothing,
};

struct OptionRow {
  std::string_view name;
  std::string_view default_value;
  std::string_view help;
  FlagTakes takes;
  // False if `value` is none of the flag. `complaint`, which is the help, may then be replaced by what is wrong with
  // it.
  bool (*store)(const std::string& value, Options& options, std::string& complaint);
};

extern const std::array<OptionRow, 13> kOptions;

}  // namespace nccl_exporter
