// SPDX-License-Identifier: Apache-2.0
// `promtool check metrics`, for tests of scrape bodies.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace nccl_exporter::exporter {

// The complaints of promtool (of Debian's package prometheus) about metrics in text 0.0.4; empty if
// it has none.
inline std::string PromtoolComplaints(const std::string& text) {
  const char* directory = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(directory == nullptr ? "/tmp" : directory) +
                           "/promtool-input." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << text;
  std::FILE* output = popen(("promtool check metrics < '" + path + "' 2>&1").c_str(), "r");
  if (output == nullptr) return "cannot run promtool";
  std::string complaints;
  for (int character = std::fgetc(output); character != EOF; character = std::fgetc(output)) {
    complaints += static_cast<char>(character);
  }
  const int status = pclose(output);
  if (status != 0) complaints += "exit status " + std::to_string(status);
  std::remove(path.c_str());
  return complaints;
}

}  // namespace nccl_exporter::exporter
