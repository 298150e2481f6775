// SPDX-License-Identifier: Apache-2.0
// Texts under libFuzzer: see tools/fuzz.
#include <cstddef>
#include <cstdint>

#include "exporter/testing/text_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nccl_exporter::exporter::fuzz::CheckInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
