// SPDX-License-Identifier: Apache-2.0
// Compares the README's option tables with the tables that the programs read.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "plugin/options.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

void ExpectInReadme(const std::string& table) {
  std::ifstream file("README.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(table), std::string::npos) << "README.md should contain:\n" << table;
}

TEST(Readme, ShowsTheOptionsOfTheDaemon) {
  const Finished options = RunToEnd({kDaemonPath, "options"});
  ASSERT_EQ(options.exit_code, 0);
  ExpectInReadme(options.output);
}

TEST(Readme, ShowsTheOptionsOfThePlugin) {
  std::string table = "| variable | default | meaning |\n|---|---|---|\n";
  for (const OptionRow& row : kOptions) {
    const std::string value = row.default_text;
    table +=
        "| `" + std::string(row.name) + "` | " + (value.empty() ? "" : "`" + value + "`") + " | " + row.help + " |\n";
  }
  ExpectInReadme(table);
}

}  // namespace
}  // namespace nccl_exporter
