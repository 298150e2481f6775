// SPDX-License-Identifier: Apache-2.0
// An operation as NCCL announces it. NCCL's texts and numbers for functions and datatypes, turned
// into ours without a loop over a table: this runs for every operation. Texts may be NULL or
// unknown; both are answered, never refused.
#pragma once

#include <cstdint>
#include <utility>

#include "proto/collective.h"

namespace nccl_exporter::plugin {

// Start of a collective or point-to-point task, the same for every API version.
struct OperationStart {
  Function function = Function::kOther;
  uint64_t message_bytes = 0;
  uint64_t sequence = 0;       // NCCL's, by function; 0 for Send and Recv
  uint64_t call_ns = 0;        // CLOCK_MONOTONIC at or before the call
  bool call_is_bound = false;  // the kernel cannot have started before call_ns
  // The API announces calls, so that readers take the call's time for such a bound.
  bool has_call_events = false;
  uint32_t channels = 0;  // announced; 0: not known
  bool channels_are_exact = false;
  bool has_no_parts = false;  // nothing will be reported on it (proxies do not take sends to self)
  bool is_to_self = false;    // Send or Recv
  bool is_replay = false;     // of a captured graph
  // Runs on a kernel over symmetric windows, which never crosses the network by proxies.
  bool is_symmetric = false;
  // By copy engine: no kernel, and NCCL's number of it is of another sequence.
  bool is_copy = false;
  // No part of its own: the channels of its launch's first task are its own, too.
  bool is_carried = false;
  // It may have no channels, so that nothing shows when it is complete: called outside of a window
  // (it has proxy operations if it crosses the network), by copy engine, or possibly the replay of
  // a symmetric kernel.
  bool is_untimed = false;
  int peer = -1;
  uint64_t launch = 0;  // ticket of its Group event; 0: none
  bool launch_is_followed = true;
};

// Whether the text is this one, compared byte by byte and no further than its end; unrolled,
// without a call.
template <size_t kSize>
inline bool IsText(const char* text, const char (&expected)[kSize]) {
  return [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    return ((text[kAt] == expected[kAt]) && ...);
  }
  (std::make_index_sequence<kSize>());
}

// API v2 and later. The frequent ones first.
inline Function FunctionOf(const char* text) {
  if (text == nullptr) return Function::kOther;
  if (text[0] == 'A') {
    if (IsText(text, "AllReduce")) return Function::kAllReduce;
    if (IsText(text, "AllGather")) return Function::kAllGather;
    return IsText(text, "AlltoAll") ? Function::kAlltoAll : Function::kOther;
  }
  if (text[0] == 'R') {
    if (IsText(text, "ReduceScatter")) return Function::kReduceScatter;
    if (IsText(text, "Recv")) return Function::kRecv;
    return IsText(text, "Reduce") ? Function::kReduce : Function::kOther;
  }
  if (IsText(text, "Send")) return Function::kSend;
  if (IsText(text, "Broadcast")) return Function::kBroadcast;
  if (IsText(text, "Gather")) return Function::kGather;
  return IsText(text, "Scatter") ? Function::kScatter : Function::kOther;
}

// API v1: NCCL's enumeration at the time.
inline Function FunctionOf(uint8_t number) {
  constexpr Function kNumbers[] = {
      Function::kBroadcast, Function::kReduce, Function::kAllGather, Function::kReduceScatter,
      Function::kAllReduce, Function::kOther,  Function::kSend,      Function::kRecv};
  return number < sizeof(kNumbers) ? kNumbers[number] : Function::kOther;
}

// Bytes of an element, by NCCL's name of the datatype; 1 for NULL, "Unknown" (which is ncclUint8)
// and every other text.
inline uint32_t ElementBytesOf(const char* text) {
  if (text == nullptr || text[0] != 'n' || text[1] != 'c' || text[2] != 'c' || text[3] != 'l')
    return 1;
  const char* name = text + 4;
  switch (name[0]) {
    case 'B':
      return IsText(name, "Bfloat16") ? 2 : 1;
    case 'F':
      if (IsText(name, "Float32")) return 4;
      if (IsText(name, "Float16")) return 2;
      return IsText(name, "Float64") ? 8 : 1;
    case 'I':
      if (IsText(name, "Int32")) return 4;
      return IsText(name, "Int64") ? 8 : 1;
    case 'U':
      if (IsText(name, "Uint32")) return 4;
      return IsText(name, "Uint64") ? 8 : 1;
    default:
      return 1;
  }
}

inline uint32_t ElementBytesOf(uint8_t datatype) {
  return datatype < kDatatypes.size() ? kDatatypes[datatype].bytes : 1;
}

}  // namespace nccl_exporter::plugin
