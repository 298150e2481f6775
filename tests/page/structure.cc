// SPDX-License-Identifier: Apache-2.0
#include "tests/page/structure.h"

#include <algorithm>

namespace nccl_exporter {

std::vector<std::string> StructureOf(Page& page, const std::string& state, const Form& form) {
  page.Resize(form);
  if (!page.Show(state) || !page.OpenFirst()) return {};
  return page.Evaluate(PageFile("structure.js"));
}

std::string StructureText(const std::vector<std::string>& wide,
                          const std::vector<std::string>& phone) {
  std::string text;
  auto next = phone.begin();
  for (const std::string& line : wide) {
    const auto same = std::find(next, phone.end(), line);
    if (same == phone.end()) {
      text += "- " + line + "\n";
      continue;
    }
    for (; next != same; ++next) text += "+ " + *next + "\n";
    text += "  " + line + "\n";
    ++next;
  }
  for (; next != phone.end(); ++next) text += "+ " + *next + "\n";
  return text;
}

}  // namespace nccl_exporter
