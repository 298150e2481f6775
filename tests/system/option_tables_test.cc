// SPDX-License-Identifier: Apache-2.0
// Compares the option tables of the documents with the tables that the programs read.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "plugin/options.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

void ExpectIn(const std::string& document, const std::string& table) {
  std::ifstream file(document);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(table), std::string::npos) << document << " should contain:\n" << table;
}

TEST(OptionTables, ShowTheFlagsOfTheDaemon) {
  const Finished options = RunToEnd({kDaemonPath, "options"});
  ASSERT_EQ(options.exit_code, 0);
  ExpectIn("docs/daemon.md", options.output);
}

TEST(OptionTables, ShowTheVariablesOfThePlugin) {
  std::string table = "| variable | default | meaning |\n|---|---|---|\n";
  for (const OptionRow& row : kOptions) {
    const std::string value = row.default_text;
    table +=
        "| `" + std::string(row.name) + "` | " + (value.empty() ? "" : "`" + value + "`") + " | " + row.help + " |\n";
  }
  ExpectIn("docs/plugin.md", table);
}

}  // namespace
}  // namespace nccl_exporter
