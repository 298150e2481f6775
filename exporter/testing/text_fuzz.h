// SPDX-License-Identifier: Apache-2.0
// The function of a fuzzer of texts: an input library defines it, text_fuzz.cc or libFuzzer calls
// it.
#pragma once

#include <string_view>

namespace nccl_exporter::exporter::fuzz {

// Aborts with a message if a guarantee about the input is broken.
void CheckInput(std::string_view input);

}  // namespace nccl_exporter::exporter::fuzz
