// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/vocabulary.h"

#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::plugin {
namespace {

TEST(Vocabulary, KnowsEveryFunctionOfTheTableByNcclsName) {
  for (int i = 0; i < kFunctionCount; ++i) {
    EXPECT_EQ(FunctionOf(kFunctions[i].name.data()), static_cast<Function>(i))
        << kFunctions[i].name;
  }
}

TEST(Vocabulary, TakesEveryOtherTextForOther) {
  for (const char* text : {"",         "A",         "Al",
                           "All",      "AllReduc",  "AllReduceX",
                           "Red",      "ReduceX",   "ReduceScatterX",
                           "R",        "S",         "Se",
                           "SendRecv", "PutSignal", "WaitSignal",
                           "Signal",   "Invalid",   "broadcast",
                           "G",        "B",         "AllGatherV"}) {
    EXPECT_EQ(FunctionOf(text), Function::kOther) << text;
  }
  EXPECT_EQ(FunctionOf(static_cast<const char*>(nullptr)), Function::kOther);
}

TEST(Vocabulary, KnowsTheNumbersOfVersionOne) {
  EXPECT_EQ(FunctionOf(uint8_t{0}), Function::kBroadcast);
  EXPECT_EQ(FunctionOf(uint8_t{4}), Function::kAllReduce);
  EXPECT_EQ(FunctionOf(uint8_t{6}), Function::kSend);
  EXPECT_EQ(FunctionOf(uint8_t{7}), Function::kRecv);
  EXPECT_EQ(FunctionOf(uint8_t{8}), Function::kOther);
  EXPECT_EQ(FunctionOf(uint8_t{255}), Function::kOther);
}

TEST(Vocabulary, KnowsTheSizeOfEveryDatatypeOfTheTable) {
  for (size_t i = 0; i < kDatatypes.size(); ++i) {
    EXPECT_EQ(ElementBytesOf(kDatatypes[i].name.data()), kDatatypes[i].bytes) << kDatatypes[i].name;
    EXPECT_EQ(ElementBytesOf(static_cast<uint8_t>(i)), kDatatypes[i].bytes);
  }
}

TEST(Vocabulary, CountsAnUnknownDatatypeAsOneByteAnElement) {
  EXPECT_EQ(ElementBytesOf("Unknown"), 1u);  // NCCL's text for ncclUint8
  EXPECT_EQ(ElementBytesOf(""), 1u);
  EXPECT_EQ(ElementBytesOf(static_cast<const char*>(nullptr)), 1u);
  EXPECT_EQ(ElementBytesOf(std::string(1000, 'x').c_str()), 1u);
  EXPECT_EQ(ElementBytesOf(uint8_t{200}), 1u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
