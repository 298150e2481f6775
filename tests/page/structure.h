// SPDX-License-Identifier: Apache-2.0
// Structure of a state of the page, in order, without numbers and names: page_test compares it.
#pragma once

#include <string>
#include <vector>

#include "tests/page/page.h"

namespace nccl_exporter {

// The visible structure in this form, by structure.js, with the first communicator open. Empty if
// the page was not drawn.
std::vector<std::string> StructureOf(Page& page, const std::string& state, const Form& form);

// The text of a state's file: the lines of `wide`, those that `phone` lacks marked with "- ", and
// those that only it has with "+ ".
std::string StructureText(const std::vector<std::string>& wide,
                          const std::vector<std::string>& phone);

}  // namespace nccl_exporter
