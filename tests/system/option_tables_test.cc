// SPDX-License-Identifier: Apache-2.0
// Compares the option tables of the documents with the tables that the programs read.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

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

std::string RowOf(const std::string& name, const std::string& value, const std::string& help) {
  return "| `" + name + "` | " + (value.empty() ? "" : "`" + value + "`") + " | " + help + " |\n";
}

TEST(OptionTables, ShowTheFlagsOfTheDaemon) {
  const exporter::Finished catalogue = exporter::RunToEnd({kDaemonPath, "catalogue"});
  ASSERT_EQ(catalogue.exit_code, 0);
  std::string table = "| flag | default | meaning |\n|---|---|---|\n";
  for (const nlohmann::json& row : nlohmann::json::parse(catalogue.output)["options"]) {
    table += RowOf(row["name"], row["default"], row["help"]);
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
