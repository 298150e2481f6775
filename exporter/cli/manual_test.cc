// SPDX-License-Identifier: Apache-2.0
// The manual page and the completion name every command and flag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "exporter/cli/command_line.h"
#include "exporter/testing/child_process.h"

namespace nccl_exporter::exporter {
namespace {

TEST(ManualPageTest, HasAllCommandsAndFlags) {
  const CommandLine line;
  const std::string page = ManualPage(line);
  EXPECT_THAT(page, testing::StartsWith(".TH NCCL\\-EXPORTER 1 "));
  for (const char* const command : {"top", "inflight", "doctor", "trace", "trace merge"})
    EXPECT_THAT(page, testing::HasSubstr(".SS " + std::string(command) + "\n"));
  EXPECT_THAT(page,
              testing::HasSubstr(
                  "\\fB\\-\\-web.telemetry\\-path\\fR \\fIVALUE\\fR\nPath of the metrics. The "
                  "default is /metrics."));
  EXPECT_THAT(page, testing::HasSubstr("\\fBFILE\\fR\n"));
  EXPECT_THAT(page, testing::HasSubstr("\\fB\\-\\-once\\fR\n"));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr(".SS man"))) << "for the package only";
}

class BashCompletionTest : public testing::Test {
 protected:
  BashCompletionTest() { std::ofstream(path_) << BashCompletion(CommandLine()); }

  // The words that bash offers to complete the last of these words.
  std::string Offered(const std::string& words) {
    return RunToEnd({"/bin/bash", "-c",
                     "source " + path_ + "; COMP_WORDS=(" + words +
                         "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _nccl_exporter; echo "
                         "\"${COMPREPLY[@]}\""})
        .output;
  }

  const std::string path_ = std::getenv("TEST_TMPDIR") + std::string("/completion");
};

TEST_F(BashCompletionTest, OffersCommandsAndTheirFlags) {
  EXPECT_EQ(Offered("nccl-exporter to"), "top\n");
  EXPECT_EQ(Offered("nccl-exporter trace m"), "merge\n");
  EXPECT_EQ(Offered("nccl-exporter trace --se"), "--seconds --segment.dir\n");
  EXPECT_EQ(Offered("nccl-exporter help d"), "doctor\n");
  EXPECT_EQ(Offered("nccl-exporter top --s"), "--segment.dir\n");
  EXPECT_EQ(Offered("nccl-exporter --segment.dir /x inflight --j"), "--json\n");
  EXPECT_EQ(Offered("nccl-exporter --web.t"), "--web.telemetry-path\n");
  EXPECT_EQ(Offered("nccl-exporter trace summary /x"), "\n") << "files are bash's own";
}

}  // namespace
}  // namespace nccl_exporter::exporter
