// SPDX-License-Identifier: Apache-2.0
// The functions, datatypes, size classes and bus factors that plugin, collector, exporter and
// simulator must agree on. Definitions of message size and bus bandwidth are those of nccl-tests
// (PERFORMANCE.md); names are NCCL's own.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "proto/code_table.h"

namespace nccl_exporter {

// The closed set of NCCL functions. The values index arrays in the segment: another one is another
// layout major.
enum class Function : uint8_t {
  kBroadcast = 0,
  kReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4,
  kAlltoAll = 5,
  kGather = 6,
  kScatter = 7,
  kSend = 8,
  kRecv = 9,
  kOther = 10,  // one-sided operations and whatever a later NCCL adds
};
inline constexpr int kFunctionCount = 11;

// Bandwidth factor of a function, busbw = factor * algbw, by the number of ranks n.
enum class BusFactor : uint8_t {
  kOne,            // 1
  kShare,          // (n-1)/n
  kTwiceTheShare,  // 2(n-1)/n
  kUndefined,      // no definition in nccl-tests
};

struct FunctionTraits {
  Function id;
  std::string_view name;   // NCCL's name, and the value of the label `collective`
  BusFactor bus_factor;    // see BusBytes()
  bool size_counts_ranks;  // message size = nranks * count * element size, not count * element size
  bool is_point_to_point;  // Send and Recv: exported as nccl_p2p_*
};

inline constexpr std::array<FunctionTraits, kFunctionCount> kFunctions{{
    {Function::kBroadcast, "Broadcast", BusFactor::kOne, false, false},
    {Function::kReduce, "Reduce", BusFactor::kOne, false, false},
    {Function::kAllGather, "AllGather", BusFactor::kShare, true, false},
    {Function::kReduceScatter, "ReduceScatter", BusFactor::kShare, true, false},
    {Function::kAllReduce, "AllReduce", BusFactor::kTwiceTheShare, false, false},
    {Function::kAlltoAll, "AlltoAll", BusFactor::kShare, true, false},
    {Function::kGather, "Gather", BusFactor::kShare, true, false},
    {Function::kScatter, "Scatter", BusFactor::kShare, true, false},
    {Function::kSend, "Send", BusFactor::kOne, false, true},
    {Function::kRecv, "Recv", BusFactor::kOne, false, true},
    {Function::kOther, "Other", BusFactor::kUndefined, false, false},
}};
static_assert(IsInOrder(kFunctions));

constexpr const FunctionTraits& TraitsOf(Function function) { return RowIn(kFunctions, function); }

// The function that NCCL calls `name`; kOther for every other text.
constexpr Function FunctionByName(std::string_view name) {
  for (int i = 0; i < kFunctionCount; ++i) {
    if (kFunctions[static_cast<size_t>(i)].name == name) return static_cast<Function>(i);
  }
  return Function::kOther;
}

struct DatatypeTraits {
  std::string_view name;
  uint32_t bytes;  // of one element
};

// In the order of ncclDataType_t. NCCL's profiler names ncclUint8 "Unknown" (it is missing from
// NCCL's own table).
inline constexpr std::array<DatatypeTraits, 12> kDatatypes{{
    {"ncclInt8", 1},
    {"ncclUint8", 1},
    {"ncclInt32", 4},
    {"ncclUint32", 4},
    {"ncclInt64", 8},
    {"ncclUint64", 8},
    {"ncclFloat16", 2},
    {"ncclFloat32", 4},
    {"ncclFloat64", 8},
    {"ncclBfloat16", 2},
    {"ncclFloat8e4m3", 1},
    {"ncclFloat8e5m2", 1},
}};

// Size classes of a message, by lower bound in bytes; the label `size` is the bound.
inline constexpr int kSizeClassCount = 6;
inline constexpr std::array<uint64_t, kSizeClassCount> kSizeClassBounds{
    0, 4096, 65536, 1048576, 16777216, 268435456};

// The bounds are a factor 16 apart, from 2^12 on.
constexpr int SizeClassOf(uint64_t message_bytes) {
  const int size_class = (static_cast<int>(std::bit_width(message_bytes | 0x100)) - 9) / 4;
  return size_class < kSizeClassCount ? size_class : kSizeClassCount - 1;
}

// Only messages of this size and more enter the bus bandwidth histogram: below it latency hides the
// bandwidth.
inline constexpr uint64_t kBandwidthMinimumBytes = 1048576;

// Message size S as nccl-tests reports it. `nranks` 0 (unknown up to profiler API v3) counts as 1,
// so that there AllGather, ReduceScatter and their kin report the bytes of one rank's share. Wraps
// modulo 2^64 as NCCL's own would.
constexpr uint64_t MessageBytes(Function function, uint64_t count, uint32_t element_bytes,
                                uint32_t nranks) {
  const uint64_t share = count * element_bytes;
  return TraitsOf(function).size_counts_ranks && nranks > 1 ? share * nranks : share;
}

// (n-1)/n; 0 where the number of ranks is not known.
constexpr double BusShare(uint32_t nranks) {
  return nranks == 0 ? 0.0 : static_cast<double>(nranks - 1) / static_cast<double>(nranks);
}

// S times the bus factor, by the BusShare() of the communicator: bytes that each link must carry. 0
// where the factor is undefined or needs an unknown nranks.
constexpr double BusBytesOfShare(Function function, uint64_t message_bytes, double share) {
  const double bytes = static_cast<double>(message_bytes);
  switch (TraitsOf(function).bus_factor) {
    case BusFactor::kOne:
      return bytes;
    case BusFactor::kShare:
      return bytes * share;
    case BusFactor::kTwiceTheShare:
      return bytes * (2.0 * share);
    case BusFactor::kUndefined:
      break;
  }
  return 0.0;
}

constexpr double BusBytes(Function function, uint64_t message_bytes, uint32_t nranks) {
  return BusBytesOfShare(function, message_bytes, BusShare(nranks));
}

// Bus bandwidth in whole bytes per second, rounded down; 0 where BusBytes() is 0 or the duration is
// 0.
constexpr uint64_t BusBandwidth(double bus_bytes, uint64_t duration_ns) {
  if (duration_ns == 0) return 0;
  const double bandwidth = bus_bytes * 1e9 / static_cast<double>(duration_ns);
  return bandwidth < 9e18 ? static_cast<uint64_t>(bandwidth) : 9000000000000000000u;
}
constexpr uint64_t BusBandwidth(Function function, uint64_t message_bytes, uint32_t nranks,
                                uint64_t duration_ns) {
  return BusBandwidth(BusBytes(function, message_bytes, nranks), duration_ns);
}

}  // namespace nccl_exporter
