// SPDX-License-Identifier: Apache-2.0
// Histogram bounds: those of Prometheus native histograms, schema 3 (a factor 2^(1/8), about 9 %),
// as integer floors.
//
// Bucket i of schema 3 covers (2^((i-1)/8), 2^(i/8)] of the exposed unit. Values are whole
// nanoseconds or whole bytes per second, so `value <= bound` and `value <= floor(bound)` say the
// same and integer floors lose nothing. An array of counts has one word for values at or below the
// lowest bound, one a bucket, one for values above the highest bound.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace nccl_exporter {

__extension__ typedef unsigned __int128 uint128_t;

namespace buckets_internal {

constexpr uint128_t IntegerSquareRoot(uint128_t value) {
  uint128_t root = 0;
  for (uint128_t bit = uint128_t{1} << 63; bit != 0; bit >>= 1) {
    const uint128_t next = root | bit;
    if (next <= value / next) root = next;
  }
  return root;
}

// 2^(eighths/8) for eighths 0 to 7, in units of 2^-62: products of square roots of square roots.
constexpr uint128_t EighthPower(int eighths) {
  constexpr uint128_t kOne = uint128_t{1} << 62;
  uint128_t power = kOne;
  uint128_t factor = 2 * kOne;  // becomes 2^(1/2), 2^(1/4), 2^(1/8)
  for (int bit = 4; bit != 0; bit /= 2) {
    factor = IntegerSquareRoot(factor * kOne);
    if (eighths & bit) power = power * factor >> 62;
  }
  return power;
}

// floor(scale * 2^(index/8)), for results below 2^63.
constexpr uint64_t BoundFloor(uint64_t scale, int index) {
  const int octave = index >= 0 ? index / 8 : -((-index + 7) / 8);
  const uint128_t scaled = EighthPower(index - 8 * octave) * scale;
  return static_cast<uint64_t>(octave <= 62 ? scaled >> (62 - octave) : scaled << (octave - 62));
}

inline double NativeBound(int index) {
  const int octave = index >= 0 ? index / 8 : -((-index + 7) / 8);
  return std::ldexp(static_cast<double>(EighthPower(index - 8 * octave)), octave - 62);
}

}  // namespace buckets_internal

// A range of native buckets: bounds 2^(kFirst/8) to 2^(kLast/8) of a unit that has kScale parts
// (10^9 ns in a second). Index 0 counts values up to bound kFirst; index i (1 to kBoundCount-1) is
// native bucket kFirst+i; the last index counts values above bound kLast.
template <uint64_t kScale, int kFirst, int kLast>
struct BucketRange {
  static constexpr int kSchema = 3;
  static constexpr uint64_t kUnitScale = kScale;
  static constexpr int kFirstBound = kFirst;
  static constexpr int kLastBound = kLast;
  static constexpr int kBoundCount = kLast - kFirst + 1;
  static constexpr int kCount = kBoundCount + 1;

  // Floors of the bounds, in parts; kFloors[i] is the greatest value that index i counts.
  static constexpr std::array<uint64_t, kBoundCount> kFloors = [] {
    std::array<uint64_t, kBoundCount> floors{};
    for (int i = 0; i < kBoundCount; ++i)
      floors[static_cast<size_t>(i)] = buckets_internal::BoundFloor(kScale, kFirst + i);
    return floors;
  }();

  // The index that counts `value`. Constant time: a table look-up and at most four comparisons.
  static constexpr int IndexOf(uint64_t value) {
    int index = kGuess[GuessKey(value)];
    while (index < kBoundCount && value > kFloors[static_cast<size_t>(index)]) ++index;
    return index;
  }

  // The upper bound of index i < kBoundCount in the exposed unit: the float64 nearest to
  // 2^((kFirst+i)/8), as in Prometheus.
  static double UpperBound(int index) { return buckets_internal::NativeBound(kFirst + index); }

 private:
  // The position of the highest bit and the three bits below it: eight keys an octave, as many as
  // there are buckets.
  static constexpr size_t GuessKey(uint64_t value) {
    if (value < 8) return static_cast<size_t>(value);
    const int octave = 63 - std::countl_zero(value);
    return static_cast<size_t>(octave - 2) * 8 + static_cast<size_t>(value >> (octave - 3) & 7);
  }
  static constexpr size_t kGuessCount = 62 * 8;
  static constexpr std::array<uint16_t, kGuessCount> kGuess = [] {
    std::array<uint16_t, kGuessCount> guess{};
    for (size_t key = 0; key < kGuessCount; ++key) {
      const int octave = static_cast<int>(key / 8) + 2;
      const uint64_t least = key < 8 ? key : (8 + uint64_t{key % 8}) << (octave - 3);
      uint16_t index = 0;
      while (index < kBoundCount && kFloors[index] < least) ++index;
      guess[key] = index;
    }
    return guess;
  }();
};

// Durations: 2^-20 s (0.95 us) to 2^10 s (17 min). Below, GPU clocks tick in steps of up to 1 us;
// above, a watchdog has fired.
using DurationBuckets = BucketRange<1000000000, -160, 80>;
// Bus bandwidth: 2^20 B/s (1 MB/s) to 2^42 B/s (4.4 TB/s).
using BandwidthBuckets = BucketRange<1, 160, 336>;

// Classic `le` bounds, as native bucket indices, so that both views are exact. Durations: 2^-16 s
// (15 us) to 2^2 s (4 s), a factor 4 apart; bandwidth: 2^27 B/s (134 MB/s) to 2^40 B/s (1.1 TB/s).
inline constexpr std::array<int, 10> kClassicDurationBounds{-128, -112, -96, -80, -64,
                                                            -48,  -32,  -16, 0,   16};
inline constexpr std::array<int, 10> kClassicBandwidthBounds{216, 232, 248, 264, 272,
                                                             280, 288, 296, 304, 320};

}  // namespace nccl_exporter
