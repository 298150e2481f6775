// SPDX-License-Identifier: Apache-2.0
// The manual page and the completion for bash, made from the commands and flags of the program.
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

std::string FlagsText(const CLI::App& app) {
  return CLI::detail::join(CommandLine::FlagsOf(app), " ");
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
      ".TP\n\\fBNO_COLOR\\fR\nIf it has a value, \\fBtop\\fR and \\fBjob\\fR have no colors.\n"
      ".SH SEE ALSO\nREADME.md and docs in /usr/share/doc/nccl\\-exporter\n";
  return page;
}

// A command with parts completes to its parts and to the flags of all of them.
std::string BashCompletion(const CommandLine& line) {
  std::string names, cases;
  for (const CLI::App* const command : line.Commands()) {
    if (command->get_parent() != &line.program()) continue;
    std::string flags = FlagsText(*command), parts;
    for (const CLI::App* const part : command->get_subcommands({})) {
      parts += (parts.empty() ? "" : " ") + part->get_name();
      flags += " " + FlagsText(*part);
    }
    names += (names.empty() ? "" : " ") + command->get_name();
    cases += "    " + command->get_name() + ") flags='" + flags + "' parts='" + parts + "' ;;\n";
  }
  return "# Completion of nccl-exporter for bash; files where nothing else fits.\n"
         "_nccl_exporter() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} command= flags= parts=\n"
         "  local commands='" +
         names +
         "' given\n"
         "  for given in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    case \" $commands \" in *\" $given \"*) command=$given; break ;; esac\n"
         "  done\n"
         "  case $command in\n" +
         cases + "    *) flags='" + FlagsText(line.program()) +
         "' parts=$commands ;;\n"
         "  esac\n"
         "  [[ $command != help ]] || parts=$commands\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$(printf '%s\\n' $flags | sort -u)\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -W \"$parts\" -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o default -F _nccl_exporter nccl-exporter\n";
}

}  // namespace nccl_exporter::exporter
