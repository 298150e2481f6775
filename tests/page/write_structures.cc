// SPDX-License-Identifier: Apache-2.0
// Writes the files that page_test compares the page with, to be reviewed as a change:
// bazel run //tests/page:write_structures -- "$PWD/tests/page/structures"
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/page/structure.h"

int main(int argc, char** argv) {
  using namespace nccl_exporter;
  if (argc != 2) {
    std::fputs("usage: write_structures DIRECTORY\n", stderr);
    return 2;
  }
  if (Browser::Path().empty()) {
    std::fputs("Chromium is not installed (Debian: chromium-headless-shell)\n", stderr);
    return 1;
  }
  Page page;
  for (const std::string state : kStates) {
    const std::vector<std::string> wide = StructureOf(page, state, kForms[0]);
    const std::string path = std::string(argv[1]) + '/' + state + ".txt";
    std::ofstream file(path);
    file << StructureText(wide, StructureOf(page, state, kForms[2]));
    if (wide.empty() || !file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
