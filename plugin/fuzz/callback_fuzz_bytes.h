// SPDX-License-Identifier: Apache-2.0
// The bytes that a fuzzed session is played from: those of a fuzzer's input, or endless ones from a
// seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace nccl_exporter::plugin::fuzz {

class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> input) : input_(input), is_endless_(false) {}
  explicit Bytes(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1), is_endless_(true) {}

  bool IsOver() const { return !is_endless_ && input_.empty(); }

  uint8_t Next() {
    if (is_endless_) return static_cast<uint8_t>(NextRandom() >> 56);
    if (input_.empty()) return 0;
    const uint8_t byte = input_.front();
    input_ = input_.subspan(1);
    return byte;
  }
  uint64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | Next();
    return word;
  }
  // 0 to count - 1; count at most 256.
  uint32_t Below(uint32_t count) { return Next() % count; }
  bool OneIn(uint32_t count) { return Below(count) == 1 % count; }  // never when the input is over

 private:
  uint64_t NextRandom() {  // xorshift64*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1d;
  }

  std::span<const uint8_t> input_;
  uint64_t state_ = 0;
  const bool is_endless_;
};

}  // namespace nccl_exporter::plugin::fuzz
