// SPDX-License-Identifier: Apache-2.0
// Texts and numbers that NCCL passes for functions and datatypes, or might one day, with what the
// plugin must take them for. The texts are on the heap, each alone, so that reading beyond one is
// noticed.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "proto/collective.h"

namespace nccl_exporter::plugin::fuzz {

class Texts {
 public:
  explicit Texts(const std::vector<std::string_view>& texts) {
    texts_.emplace_back(nullptr);
    for (const std::string_view text : texts) {
      texts_.emplace_back(new char[text.size() + 1]);
      std::memcpy(texts_.back().get(), text.data(), text.size());
      texts_.back()[text.size()] = '\0';
    }
  }
  const char* Pick(uint32_t choice) const { return texts_[choice % texts_.size()].get(); }

 private:
  std::vector<std::unique_ptr<char[]>> texts_;
};

inline const Texts& FunctionTexts() {
  static const Texts texts = [] {
    std::vector<std::string_view> all{
        "",  "A", "AB",    "All",     "AllReducE", "AllReduce ", "Reduce2",      "Se",
        "S", "R", "Reduc", "Gathers", "B",         "PutSignal",  "\xff\xfe\x80", "allreduce"};
    for (int twice = 0; twice < 2; ++twice) {
      for (const FunctionTraits& function : kFunctions) all.push_back(function.name);
    }
    return Texts(all);
  }();
  return texts;
}

inline const Texts& DatatypeTexts() {
  static const Texts texts = [] {
    std::vector<std::string_view> all{"", "Unknown", "nccl", "\xff\xff\xff",
                                      "ncclSomeTypeOfTheFarAwayFuture"};
    for (const DatatypeTraits& datatype : kDatatypes) all.push_back(datatype.name);
    return Texts(all);
  }();
  return texts;
}

inline Function MeaningOf(const char* function) {
  return function == nullptr ? Function::kOther : FunctionByName(function);
}
inline uint32_t BytesOf(const char* datatype) {
  for (const DatatypeTraits& known : kDatatypes) {
    if (datatype != nullptr && known.name == datatype) return known.bytes;
  }
  return 1;
}

// API v1 passes numbers: of functions those of NCCL 2.23, of datatypes those of ncclDataType_t.
inline Function MeaningOf(uint8_t number) {
  switch (number) {
    case 0:
      return Function::kBroadcast;
    case 1:
      return Function::kReduce;
    case 2:
      return Function::kAllGather;
    case 3:
      return Function::kReduceScatter;
    case 4:
      return Function::kAllReduce;
    case 6:
      return Function::kSend;
    case 7:
      return Function::kRecv;
    default:
      return Function::kOther;
  }
}
inline uint32_t BytesOf(uint8_t datatype) {
  return datatype < kDatatypes.size() ? kDatatypes[datatype].bytes : 1;
}

}  // namespace nccl_exporter::plugin::fuzz
