// SPDX-License-Identifier: Apache-2.0
// What a fuzzer of texts is made of: an input library defines this function, text_fuzz.cc or libFuzzer calls it.
#pragma once

#include <string_view>

namespace nccl_exporter::fuzz {

// Aborts, saying which, where a promise about the input is broken.
void CheckInput(std::string_view input);

}  // namespace nccl_exporter::fuzz
