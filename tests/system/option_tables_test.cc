// SPDX-License-Identifier: Apache-2.0
// Compares the tables of the documents with those that the programs read.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "exporter/cli/options.h"
#include "plugin/options.h"

namespace nccl_exporter {
namespace {

void ExpectIn(const std::string& document, const std::string& table) {
  std::ifstream file(document);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(table), std::string::npos) << document << " should contain:\n" << table;
}

std::string RowOf(std::string_view name, std::string_view value, std::string_view help) {
  const std::string shown = value.empty() ? "" : "`" + std::string(value) + "`";
  return "| `" + std::string(name) + "` | " + shown + " | " + std::string(help) + " |\n";
}

TEST(OptionTables, ShowTheFlagsOfTheDaemon) {
  std::string table = "| flag | default | meaning |\n|---|---|---|\n";
  for (const exporter::OptionRow& row : exporter::kOptions) {
    if (!row.is_for_tests) table += RowOf(row.name, row.default_value, row.help);
  }
  ExpectIn("docs/daemon.md", table);
}

TEST(OptionTables, ShowTheVariablesOfThePlugin) {
  std::string table = "| variable | default | meaning |\n|---|---|---|\n";
  for (const plugin::OptionRow& row : plugin::kOptions) {
    table += RowOf(row.name, row.default_text, row.help);
  }
  ExpectIn("docs/plugin.md", table);
}

}  // namespace
}  // namespace nccl_exporter
