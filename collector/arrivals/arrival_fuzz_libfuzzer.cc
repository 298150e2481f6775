// SPDX-License-Identifier: Apache-2.0
// libFuzzer's way in: any bytes are a script.
#include <cstddef>
#include <cstdint>

#include "collector/arrivals/arrival_fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nccl_exporter::collector::fuzz::PlayAndCheck(std::span(data, size));
  return 0;
}
