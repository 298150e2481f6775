// SPDX-License-Identifier: Apache-2.0
// Random numbers without state: a hash of a seed and coordinates, so that every process computes
// the same cluster.
#pragma once

#include <cstdint>

namespace nccl_exporter::sim {

// A permutation of the 64-bit numbers that scatters neighbours (multiply and xor-shift).
constexpr uint64_t Scatter(uint64_t value) {
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93u;
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93u;
  value ^= value >> 32;
  return value;
}

template <typename... Coordinates>
constexpr uint64_t HashRandom(uint64_t seed, Coordinates... coordinates) {
  uint64_t value = Scatter(seed + 0x9e3779b97f4a7c15u);
  ((value =
        Scatter(value ^ (static_cast<uint64_t>(coordinates) + 0x9e3779b97f4a7c15u + (value << 6)))),
   ...);
  return value;
}

// The random bits as a number in [0, 1).
constexpr double Fraction(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace nccl_exporter::sim
