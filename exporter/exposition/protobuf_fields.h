// SPDX-License-Identifier: Apache-2.0
// Fields, the fields of an encoded protocol buffer in their order, and what the encoder of a scrape
// has no need of. Pure functions of untrusted bytes: nothing is read beyond their end. For one
// thread per object.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "exporter/exposition/protobuf_wire.h"

namespace nccl_exporter::wire {

// fixed64, which is as long as a double.
inline void AppendFixed64(uint32_t field, uint64_t value, std::string& out) {
  AppendDouble(field, std::bit_cast<double>(value), out);
}

// An element of a packed field of fixed64 or double.
inline void AppendFixed64(uint64_t value, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value >> shift);
}

// Removes a varint from the front; false if there is none.
inline bool TakeVarint(std::string_view& text, uint64_t& value) {
  constexpr int kBitsPerByte = 7, kMostBits = 64;
  value = 0;
  for (int shift = 0; shift < kMostBits && !text.empty(); shift += kBitsPerByte) {
    const auto byte = static_cast<uint8_t>(text.front());
    text.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Removes a length and as many bytes from the front; false if they are not there.
inline bool TakeBytes(std::string_view& text, std::string_view& bytes) {
  uint64_t length = 0;
  if (!TakeVarint(text, length) || length > text.size()) return false;
  bytes = text.substr(0, length);
  text.remove_prefix(length);
  return true;
}

constexpr int64_t FromZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // Goes to the next field. False at the end, and where the rest is no field.
  bool Next() {
    constexpr uint64_t kTypeMask = 7;
    constexpr size_t kFixed64Bytes = 8;
    value_ = 0;
    bytes_ = {};
    uint64_t tag = 0;
    if (rest_.empty()) return false;
    is_right_ = TakeVarint(rest_, tag);
    number_ = static_cast<uint32_t>(tag >> 3);
    switch (tag & kTypeMask) {
      case 0:
        is_right_ = is_right_ && TakeVarint(rest_, value_);
        break;
      case 1:
        is_right_ = is_right_ && rest_.size() >= kFixed64Bytes;
        for (size_t i = 0; is_right_ && i < kFixed64Bytes; ++i)
          value_ |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
        if (is_right_) rest_.remove_prefix(kFixed64Bytes);
        break;
      case 2:
        is_right_ = is_right_ && TakeBytes(rest_, bytes_);
        break;
      default:  // those of other types are in no message that we read
        is_right_ = false;
    }
    return is_right_;
  }

  // After Next() was false: whether the message was whole.
  bool is_right() const { return is_right_; }

  // After Next() was true. A value is 0 and bytes are empty where the field has the other type.
  uint32_t number() const { return number_; }
  uint64_t value() const { return value_; }
  double AsDouble() const { return std::bit_cast<double>(value_); }
  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view rest_;
  bool is_right_ = true;
  uint32_t number_ = 0;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

// Fields 1 and 2 of a message. Others are skipped.
struct Pair {
  uint64_t first = 0, second = 0;
  std::string_view first_bytes, second_bytes;
  bool is_right = false;
};
inline Pair PairIn(std::string_view message) {
  Pair pair;
  Fields field(message);
  while (field.Next()) {
    if (field.number() > 2) continue;
    (field.number() == 1 ? pair.first : pair.second) = field.value();
    (field.number() == 1 ? pair.first_bytes : pair.second_bytes) = field.bytes();
  }
  pair.is_right = field.is_right();
  return pair;
}

}  // namespace nccl_exporter::wire
