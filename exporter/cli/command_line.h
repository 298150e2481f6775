// SPDX-License-Identifier: Apache-2.0
// CommandLine, the commands and flags of nccl-exporter as CLI11 knows them. For the first thread.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/commands.h"
#include "exporter/cli/options.h"

namespace nccl_exporter::exporter {

// The arguments, the last one first, as CLI11 wants them. Behind `--flag=` it would take the next
// argument for the value, so the empty value becomes an argument of its own.
std::vector<std::string> LastFirst(int argc, const char* const* argv);

class CommandLine {
 public:
  // `commit` is part of the version; empty where a build does not say it.
  explicit CommandLine(std::string_view commit = {});
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Returns the fault of the command line in one line; empty if there is none.
  std::string Parse(int argc, const char* const* argv);

  // After Parse() without a fault: the daemon is to run, with these options.
  bool is_daemon() const { return run_ == nullptr; }
  const Options& options() const { return options_; }
  // Else runs the command, and returns the exit code.
  int Run() const { return run_(options_); }
  // The text that the command prints, where it prints a help, the version or the like.
  const std::string& text() const { return text_; }

  // Commands that a person uses, in the order of the help; those of a command behind it.
  std::vector<const CLI::App*> Commands() const;
  const CLI::App& program() const { return app_; }
  // As it is typed: "trace merge".
  static std::string NameOf(const CLI::App& command);
  // Flags and arguments that the help shows.
  static std::vector<const CLI::Option*> OptionsOf(const CLI::App& app);

 private:
  void Add(const Command& command);
  // Prints the text when the command is run. Returns no fault.
  std::string WillPrint(std::string text);
  std::string Unexpected() const;
  std::string StoreValues();
  // The command that was given, or the program.
  const CLI::App& Given() const;

  Options options_;
  CLI::App app_;
  // Values of the daemon's flags, before and after a command.
  std::array<std::vector<std::string>, kOptions.size()> values_;
  std::map<const CLI::App*, std::function<int(const Options&)>> runs_;
  std::function<int(const Options&)> run_;
  std::string text_;
};

// The manual page nccl-exporter(1), in the language of man(7) (manual.cc).
std::string ManualPage(const CommandLine& line);

}  // namespace nccl_exporter::exporter
