// SPDX-License-Identifier: Apache-2.0
// Writes a picture of each state in each form, STATE-FORM.png, for tools/page-pictures. Trouble is
// opened where there is room for it: on a phone the picture is what one sees first.
#include <cstdio>
#include <fstream>
#include <string>

#include "exporter/testing/eventually.h"
#include "tests/page/page.h"

int main(int argc, char** argv) {
  using namespace nccl_exporter;
  if (argc != 2) {
    std::fputs("usage: write_pictures DIRECTORY\n", stderr);
    return 2;
  }
  if (Browser::Path().empty()) {
    std::fputs("Chromium is not installed (Debian: chromium-headless-shell)\n", stderr);
    return 1;
  }
  constexpr int kTransitionMilliseconds = 500;  // the lamp fades into its colour
  Page page;
  for (const Form& form : kForms) {
    page.Resize(form);
    for (const std::string state : kStates) {
      const bool is_trouble = state != "quiet" && state != "many" && form.width > 600;
      if (!page.Show(state) || (is_trouble && !page.OpenFirst())) {
        std::fprintf(stderr, "%s is not drawn\n", state.c_str());
        return 1;
      }
      // Parts that are out of sight are not drawn otherwise, and the picture is taller than the
      // window.
      page.Evaluate(
          "document.querySelectorAll('.inside').forEach((e) => { e.style.contentVisibility = "
          "'visible'; })");
      exporter::SleepMilliseconds(kTransitionMilliseconds);
      const std::string path = std::string(argv[1]) + '/' + state + '-' + form.name + ".png";
      std::ofstream file(path, std::ios::binary);
      file << page.browser().Screenshot();
      if (!file.flush()) {
        std::fprintf(stderr, "cannot write %s\n", path.c_str());
        return 1;
      }
    }
  }
  return 0;
}
