// SPDX-License-Identifier: Apache-2.0
// The manual page names every command and flag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/cli/command_line.h"

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

}  // namespace
}  // namespace nccl_exporter::exporter
