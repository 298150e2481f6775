// SPDX-License-Identifier: Apache-2.0
// Writes the golden files, to be reviewed as a change:
// bazel run //exporter/testing:write_golden_texts -- "$PWD/exporter/series/testdata"
#include <cstdio>
#include <fstream>
#include <string>

#include "exporter/testing/golden_text.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_golden_texts DIRECTORY\n", stderr);
    return 2;
  }
  for (const nccl_exporter::exporter::GoldenText& golden : nccl_exporter::exporter::kGoldenTexts) {
    const std::string path = std::string(argv[1]) + '/' + std::string(golden.file);
    std::ofstream file(path, std::ios::binary);
    file << golden.text();
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
