// SPDX-License-Identifier: Apache-2.0
// Tmux, a program under test in a real terminal. For one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "exporter/testing/child_process.h"

namespace nccl_exporter::exporter {

inline constexpr char kTmux[] = "/usr/bin/tmux";

// A tmux server of its own, with one window in which a shell runs a command.
class Tmux {
 public:
  // Throws std::runtime_error where the window cannot be made.
  Tmux(const std::string& command, int columns, int rows);
  ~Tmux();  // ends all that runs in the window
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;

  void Resize(int columns, int rows);
  // As tmux names them: "q", "Enter".
  void Type(std::vector<std::string> keys);
  // Text without styles, a line for each row.
  std::string Screen() const { return Run({"capture-pane", "-p"}).output; }
  std::string ScreenWithStyles() const { return Run({"capture-pane", "-p", "-e"}).output; }

 private:
  Finished Run(std::vector<std::string> arguments) const;

  const std::string socket_;
};

}  // namespace nccl_exporter::exporter
