// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

std::vector<Key> KeysOf(std::string typed) {
  std::vector<Key> keys;
  while (!typed.empty()) keys.push_back(TakeKey(typed));
  return keys;
}

TEST(TakeKeyTest, ReadsSequencesOfXterm) {
  EXPECT_THAT(KeysOf("\x1b[A\x1b[B\x1bOA\x1bOB\x1b[5~\x1b[6~kj"),
              testing::ElementsAre(Key::kUp, Key::kDown, Key::kUp, Key::kDown, Key::kPageUp,
                                   Key::kPageDown, Key::kUp, Key::kDown));
  EXPECT_THAT(KeysOf("\x1bq"), testing::ElementsAre(Key::kNothing, Key::kEnd));
  EXPECT_THAT(KeysOf("\x1b[1;5Cq"), testing::ElementsAre(Key::kNothing, Key::kEnd))
      << "an unknown sequence is no text";
  EXPECT_THAT(KeysOf("\x1b["), testing::SizeIs(1)) << "a sequence that is cut off";
  EXPECT_THAT(KeysOf("/ü\r\x7f"), testing::Each(Key::kNothing));
}

}  // namespace
}  // namespace nccl_exporter::exporter
