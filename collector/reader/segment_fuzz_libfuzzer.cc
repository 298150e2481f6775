// SPDX-License-Identifier: Apache-2.0
// Entry point of libFuzzer.
#include <cstddef>
#include <cstdint>

#include "collector/reader/segment_fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nccl_exporter::collector::fuzz;
  ReadAndCheck(Expand(std::span(data, size)));
  return 0;
}
