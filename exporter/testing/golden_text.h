// SPDX-License-Identifier: Apache-2.0
// What is compared whole with the files in testdata: the example snapshot in every form in which people meet it.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace nccl_exporter {

struct GoldenText {
  std::string_view file;  // in exporter/series/testdata
  std::string (*text)();
};

std::string ExampleAsText();
std::string ExampleAsOpenMetrics();
std::string ExampleAsDump();

inline constexpr std::array<GoldenText, 3> kGoldenTexts{{
    {"scrape.txt", ExampleAsText},
    {"scrape.openmetrics.txt", ExampleAsOpenMetrics},
    {"dump.txt", ExampleAsDump},
}};

}  // namespace nccl_exporter
