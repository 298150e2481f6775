// SPDX-License-Identifier: Apache-2.0
// The wire format of protocol buffers, as far as MetricFamily needs it. Each function appends one
// field. For any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_exporter::wire {

enum class Type : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2 };

// Seven bits per byte, the lowest first: at most ten bytes.
inline void AppendVarint(uint64_t value, std::string& out) {
  constexpr uint64_t kMore = 0x80;
  char bytes[10];
  size_t size = 0;
  for (; value >= kMore; value >>= 7) bytes[size++] = static_cast<char>(value | kMore);
  bytes[size++] = static_cast<char>(value);
  out.append(bytes, size);
}

constexpr size_t VarintBytes(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Negative numbers of small magnitude become small: 0, -1, 1, -2 are 0, 1, 2, 3.
constexpr uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}

inline void AppendTag(uint32_t field, Type type, std::string& out) {
  AppendVarint(uint64_t{field} << 3 | static_cast<uint32_t>(type), out);
}

// uint32, uint64, int64 and enums.
inline void AppendUint(uint32_t field, uint64_t value, std::string& out) {
  AppendTag(field, Type::kVarint, out);
  AppendVarint(value, out);
}

// sint32 and sint64.
inline void AppendSint(uint32_t field, int64_t value, std::string& out) {
  AppendUint(field, ZigZag(value), out);
}

// Little-endian, whatever the order of the host is.
inline void AppendDouble(uint32_t field, double value, std::string& out) {
  AppendTag(field, Type::kFixed64, out);
  const auto bits = std::bit_cast<uint64_t>(value);
  char bytes[8];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<char>(bits >> (8 * i));
  out.append(bytes, sizeof bytes);
}

// Strings and messages.
inline void AppendBytes(uint32_t field, std::string_view bytes, std::string& out) {
  AppendTag(field, Type::kBytes, out);
  AppendVarint(bytes.size(), out);
  out.append(bytes);
}

}  // namespace nccl_exporter::wire
