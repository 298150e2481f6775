// SPDX-License-Identifier: Apache-2.0
// The manual page, made from the commands and flags of the program.
#include <string_view>

#include "exporter/cli/command_line.h"
#include "exporter/text/version.h"

namespace nccl_exporter::exporter {
namespace {

// Text that roff prints as it is.
std::string Roff(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c;
    }
  }
  const bool is_request = roff.starts_with('.') || roff.starts_with('\'');
  return is_request ? "\\&" + roff : roff;
}

std::string SpellingOf(const CLI::Option& option) {
  std::string names;
  if (option.get_positional()) return option.get_name(true);
  for (const std::string& name : option.get_snames()) names += '-' + name + ", ";
  return names + "--" + option.get_lnames().front();
}

void AddOptions(const CLI::App& app, std::string& page) {
  for (const CLI::Option* const option : CommandLine::OptionsOf(app)) {
    page += ".TP\n\\fB" + Roff(SpellingOf(*option)) + "\\fR";
    if (option->get_items_expected_max() > 0 && !option->get_positional()) page += " \\fIVALUE\\fR";
    page += '\n' + Roff(option->get_description());
    if (!option->get_default_str().empty())
      page += " The default is " + Roff(option->get_default_str()) + '.';
    page += '\n';
  }
}

}  // namespace

std::string ManualPage(const CommandLine& line) {
  std::string page = ".TH NCCL\\-EXPORTER 1 \"\" \"nccl\\-exporter " + Roff(kVersion) +
                     "\" \"User Commands\"\n"
                     ".SH NAME\nnccl\\-exporter \\- metrics of NCCL's collectives for Prometheus\n"
                     ".SH SYNOPSIS\n\\fBnccl\\-exporter\\fR [\\fIFLAG\\fR...] [\\fICOMMAND\\fR "
                     "[\\fIFLAG\\fR...]]\n.SH DESCRIPTION\n" +
                     Roff(line.program().get_description()) +
                     " Without a command it runs until SIGTERM or SIGINT.\n.SH FLAGS\n";
  AddOptions(line.program(), page);
  page +=
      ".SH COMMANDS\nFlags that the daemon has as well stand before or after a command, others "
      "after it.\n";
  for (const CLI::App* const command : line.Commands()) {
    page += ".SS " + Roff(CommandLine::NameOf(*command)) + '\n' + Roff(command->get_description()) +
            '\n';
    AddOptions(*command, page);
  }
  page +=
      ".SH EXIT STATUS\n0 is success, 1 a failure at run time, 2 a wrong command line.\n"
      ".SH ENVIRONMENT\n.TP\n\\fBNODE_NAME\\fR\nThe node's name on the page.\n"
      ".TP\n\\fBNO_COLOR\\fR\nIf it has a value, \\fBtop\\fR has no colors.\n"
      ".SH SEE ALSO\nREADME.md and docs in /usr/share/doc/nccl\\-exporter\n";
  return page;
}

}  // namespace nccl_exporter::exporter
