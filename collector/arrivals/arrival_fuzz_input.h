// SPDX-License-Identifier: Apache-2.0
// Inputs of the fuzzer of completion rings and of the matching of arrivals: a script of what some
// ranks of one communicator write to their rings, honestly or not, and of when these are read.
#pragma once

#include <cstdint>
#include <span>

namespace nccl_exporter::collector::fuzz {

struct PlayedArrivals {
  uint64_t operations = 0;  // read from the rings
  uint64_t compared = 0;    // of a rank, summed over the ranks
};

// Any bytes are a script. Ends the program if a promise is broken.
PlayedArrivals PlayAndCheck(std::span<const uint8_t> script);

}  // namespace nccl_exporter::collector::fuzz
