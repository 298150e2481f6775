// SPDX-License-Identifier: Apache-2.0
// Terminal, a screen and a keyboard for `nccl-exporter top`. For the first thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "exporter/cli/top_view.h"

namespace nccl_exporter::exporter {

// A second screen, keys one by one, and signals. The destructor restores the screen. It uses
// control sequences of xterm, which all terminal emulators in use support, so terminfo is not
// needed.
class Terminal {
 public:
  // Standard input and output must be a terminal. Call before other threads start: it blocks
  // SIGINT, SIGTERM, SIGHUP and SIGWINCH for all of them. A thread that exists would take these
  // signals instead, and end the process without restoring the screen. Throws std::system_error.
  // At most one at a time.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // One that knows control sequences: TERM is set, and not to dumb.
  static bool IsThere();
  // False where the variable NO_COLOR has a value (https://no-color.org).
  static bool HasColours();
  // The size of the window now, in characters; 80 and 24 where the terminal does not know it.
  size_t columns() const;
  size_t rows() const;

  // Replaces the screen without flicker. `screen` has at most rows() lines of at most columns()
  // characters; longer ones scroll the first lines away. Waits while the terminal takes nothing. If
  // the terminal is gone, nothing is drawn, and the next Wait() returns kEnd.
  void Draw(const std::string& screen);

  // Waits for a key, or for a change of the window's size or the time (kNothing). A signal to end
  // and the end of the input are kEnd. Keys that came together are returned one by one, without
  // waiting. A limit of 0 only looks; a negative one waits without end.
  Key Wait(std::chrono::milliseconds limit);

 private:
  Key ReadKey();

  termios before_{};
  const int signals_;  // descriptor
  std::string typed_;  // keys that came together and were not returned yet
};

}  // namespace nccl_exporter::exporter
