// SPDX-License-Identifier: Apache-2.0
// NCCL's texts and numbers for functions and datatypes, turned into ours without a loop over a table: this runs for
// every operation. Texts may be NULL or unknown; both are answered, never refused.
#pragma once

#include <cstdint>
#include <cstring>

#include "proto/collective.h"

namespace nccl_exporter {

inline Function VerifiedFunction(const char* text, Function candidate) {
  const std::string_view name = TraitsOf(candidate).name;
  return std::strncmp(text, name.data(), name.size() + 1) == 0 ? candidate : Function::kOther;
}

// API v2 and later.
inline Function FunctionOf(const char* text) {
  if (text == nullptr) return Function::kOther;
  switch (text[0]) {
    case 'A':  // AllReduce AllGather AlltoAll
      if (text[1] == '\0' || text[2] == '\0') return Function::kOther;
      return VerifiedFunction(text, text[3] == 'R'   ? Function::kAllReduce
                                    : text[3] == 'G' ? Function::kAllGather
                                                     : Function::kAlltoAll);
    case 'B':
      return VerifiedFunction(text, Function::kBroadcast);
    case 'G':
      return VerifiedFunction(text, Function::kGather);
    case 'R':  // Reduce ReduceScatter Recv
      if (std::strncmp(text, "Reduce", 6) != 0) return VerifiedFunction(text, Function::kRecv);
      return text[6] == '\0' ? Function::kReduce : VerifiedFunction(text, Function::kReduceScatter);
    case 'S':  // Send Scatter
      return VerifiedFunction(text, text[1] == 'e' ? Function::kSend : Function::kScatter);
    default:
      return Function::kOther;
  }
}

// API v1: NCCL's enumeration at the time.
inline Function FunctionOf(uint8_t number) {
  constexpr Function kNumbers[] = {Function::kBroadcast,     Function::kReduce,    Function::kAllGather,
                                   Function::kReduceScatter, Function::kAllReduce, Function::kOther,
                                   Function::kSend,          Function::kRecv};
  return number < sizeof(kNumbers) ? kNumbers[number] : Function::kOther;
}

// Bytes of an element: the first digit in NCCL's names tells (ncclInt8, ncclBfloat16, ncclFloat8e4m3); 1 where there is
// none (NULL, "Unknown", which is ncclUint8).
inline uint32_t ElementBytesOf(const char* text) {
  constexpr int kLongestName = 16;
  for (int i = 0; text != nullptr && i < kLongestName && text[i] != '\0'; ++i) {
    switch (text[i]) {
      case '1':
        return 2;
      case '3':
        return 4;
      case '6':
        return 8;
      case '8':
        return 1;
      default:
        break;
    }
  }
  return 1;
}

inline uint32_t ElementBytesOf(uint8_t datatype) {
  return datatype < kDatatypes.size() ? kDatatypes[datatype].bytes : 1;
}

}  // namespace nccl_exporter
