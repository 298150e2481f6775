// SPDX-License-Identifier: Apache-2.0
// The state of the derived counters as 64-bit words: a writer and a reader with one interface, so
// that a type names its fields once. For one thread at a time.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace nccl_exporter::exporter {

class StateWriter {
 public:
  static constexpr bool kReads = false;

  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (Put(fields), ...);
  }
  std::vector<uint64_t> Take() { return std::move(words_); }

 private:
  void Put(double value) { words_.push_back(std::bit_cast<uint64_t>(value)); }
  template <std::integral Value>
  void Put(Value value) {
    words_.push_back(static_cast<uint64_t>(value));
  }
  template <typename Value, size_t kCount>
  void Put(const std::array<Value, kCount>& values) {
    for (const Value& value : values) Put(value);
  }

  std::vector<uint64_t> words_;
};

// Words that are missing are read as zeros, and then is_good() is false.
class StateReader {
 public:
  static constexpr bool kReads = true;

  explicit StateReader(std::span<const uint64_t> words) : words_(words) {}

  template <typename... Fields>
  void operator()(Fields&... fields) {
    (Get(fields), ...);
  }
  size_t left() const { return words_.size(); }
  bool is_good() const { return is_good_; }
  void Fail() { is_good_ = false; }

 private:
  uint64_t Next() {
    if (words_.empty()) return is_good_ = false, 0;
    const uint64_t word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }
  void Get(double& value) { value = std::bit_cast<double>(Next()); }
  template <std::integral Value>
  void Get(Value& value) {
    value = static_cast<Value>(Next());
  }
  template <typename Value, size_t kCount>
  void Get(std::array<Value, kCount>& values) {
    for (Value& value : values) Get(value);
  }

  std::span<const uint64_t> words_;
  bool is_good_ = true;
};

// The number of items that follow, each of at least one word.
template <typename Archive>
size_t TransferCount(Archive& archive, size_t count) {
  auto words = static_cast<uint64_t>(count);
  archive(words);
  if constexpr (Archive::kReads) {
    if (words > archive.left()) return archive.Fail(), 0;
  }
  return static_cast<size_t>(words);
}

}  // namespace nccl_exporter::exporter
