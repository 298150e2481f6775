// SPDX-License-Identifier: Apache-2.0
// Inputs of the segment fuzzer: terms of reading, and the bytes of a segment. Runs of zeros can be
// left out: a segment is mostly zeros, and few mutations should fall on them.
//
//   byte 0   bit 0: zeros are left out; bit 1: retention of a second; bit 2: two communicators at
//            most; bit 3: no durations by size
//   rest     the bytes; or groups: words of zeros (2 bytes), words that follow (1 byte), these
//            words
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collector/reader/segment_reader.h"

namespace nccl_exporter::collector::fuzz {

struct SegmentInput {
  std::vector<std::byte> bytes;
  ReadTerms terms;
};

inline constexpr Moment kFuzzedMoment{.realtime_ns = 1'700'000'000'000'000'000,
                                      .monotonic_ns = 5'000'000'000'000};

// Any bytes are an input, and no input expands to much more than a MiB.
SegmentInput Expand(std::span<const uint8_t> input);
std::vector<uint8_t> Compact(std::span<const std::byte> segment);

// Reads the segment. Ends the program if a guarantee of the snapshot is broken. Returns whether
// there was a snapshot.
bool ReadAndCheck(const SegmentInput& input);

}  // namespace nccl_exporter::collector::fuzz
