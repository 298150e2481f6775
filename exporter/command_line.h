// SPDX-License-Identifier: Apache-2.0
// CommandLine, the commands and flags of nccl-exporter as CLI11 knows them. For the first thread.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/options.h"

namespace nccl_exporter::exporter {

class CommandLine {
 public:
  // `options` outlives this object.
  CommandLine(Options& options, std::string_view commit);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Returns the fault of the command line in one line; empty if there is none.
  std::string Parse(int argc, const char* const* argv);

  // Commands that a person uses, in the order of the help; those of a command behind it.
  std::vector<const CLI::App*> Commands() const;
  const CLI::App& program() const { return app_; }
  // As it is typed: "trace merge".
  static std::string NameOf(const CLI::App& command);

 private:
  using Values = std::array<std::vector<std::string>, kOptions.size()>;
  // The program, or a command, with the values of flags that were given there.
  struct Place {
    Command command;
    CLI::App* app;
    Values values;
    std::array<CLI::Option*, kOptions.size()> flags{};
  };

  CLI::App* AddCommand(Command command, const std::string& name, const std::string& help) {
    return AddCommand(app_, command, name, help);
  }
  CLI::App* AddCommand(CLI::App& parent, Command command, const std::string& name,
                       const std::string& help);
  void AddFlags(Place& place);
  void AddTop();
  void AddDaemon(CLI::App& command);
  void AddJob();
  void AddTrace();
  std::string Store();
  std::string StoreRow(size_t row, const Place* place);
  std::string Help();
  std::string Unexpected() const;
  const Place* Parsed() const;

  Options& options_;
  const std::string version_text_;
  CLI::App app_;
  std::deque<Place> places_;  // the program first
  CLI::App* help_ = nullptr;
  CLI::App* version_ = nullptr;
  CLI::App* manual_ = nullptr;      // hidden: for tools/release
  CLI::App* completion_ = nullptr;  // hidden, for tools/release
  std::vector<std::string> help_topic_;
};

}  // namespace nccl_exporter::exporter
