// SPDX-License-Identifier: Apache-2.0
// Terminal, a screen and a keyboard for `nccl-exporter top`. For the first thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "exporter/commands/top_view.h"

namespace nccl_exporter::exporter {

// A second screen, keys one by one, and signals. The destructor restores the screen. It uses
// control sequences of xterm, which all terminal emulators in use support, so terminfo is not
// needed.
class Terminal {
 public:
  // Standard input and output must be a terminal. Call before other threads start: it blocks
  // SIGINT, SIGTERM, SIGHUP and SIGWINCH for all of them. Throws std::system_error.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // One that knows control sequences: TERM is set, and not to dumb.
  static bool IsThere();
  // False where the variable NO_COLOR has a value (https://no-color.org).
  static bool HasColours();
  size_t columns() const;
  size_t rows() const;

  // Replaces the screen without flicker. `screen` has at most rows() lines.
  void Draw(const std::string& screen);

  // Waits for a key, or for a change of the window's size or the time (kNothing). A signal to end
  // and the end of the input are kEnd.
  Key Wait(std::chrono::milliseconds limit);

 private:
  Key ReadKey();

  termios before_{};
  const int signals_;  // descriptor
  std::string typed_;  // keys that came together and were not returned yet
};

}  // namespace nccl_exporter::exporter
