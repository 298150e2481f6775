// SPDX-License-Identifier: Apache-2.0
// The manual page nccl-exporter(1) and the completion for bash, made from the commands and flags of
// the program itself. Pure functions, for any thread.
#pragma once

#include <string>

#include "exporter/cli/command_line.h"

namespace nccl_exporter::exporter {

// In the language of man(7).
std::string ManualPage(const CommandLine& line);

// A file for /usr/share/bash-completion/completions.
std::string BashCompletion(const CommandLine& line);

}  // namespace nccl_exporter::exporter
