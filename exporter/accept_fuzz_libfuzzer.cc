// SPDX-License-Identifier: Apache-2.0
// Negotiation under libFuzzer: see tools/fuzz.
#include <cstddef>
#include <cstdint>

#include "exporter/accept_fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nccl_exporter::fuzz::NegotiateAndCheck({reinterpret_cast<const char*>(data), size});
  return 0;
}
