// SPDX-License-Identifier: Apache-2.0
// Terminal, a screen and a keyboard for `nccl-exporter top`. For the first thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace nccl_exporter::exporter {

// kNothing: none, or one without a meaning. kEnd: q, a signal, or the end of the input.
enum class Key : uint8_t { kNothing, kEnd, kUp, kDown, kPageUp, kPageDown };

// Takes the first key from bytes that a terminal sent: a byte, or a control sequence of xterm
// (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html). Other sequences are taken whole. One
// that arrives in two parts is read as two keys. Not for an empty text.
Key TakeKey(std::string& typed);

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
  // The size of the window now, in characters; 80 and 24 where there is none, or its size is not
  // known.
  static size_t columns();
  static size_t rows();

  // Replaces the screen without flicker. `screen` has at most rows() lines of at most columns()
  // characters; longer ones scroll the first lines away. Waits while the terminal takes nothing. If
  // the terminal is gone, nothing is drawn, and the next Wait() returns kEnd.
  void Draw(const std::string& screen);

  // Waits for a key, or for a change of the window's size or the time (kNothing). A signal to end
  // and the end of the input are kEnd. Keys that came together are returned one by one, without
  // waiting. A limit of 0 only looks; a negative one waits without end.
  Key Wait(std::chrono::milliseconds limit);

 private:
  termios before_{};
  const int signals_;  // descriptor
  std::string typed_;  // keys that came together and were not returned yet
};

}  // namespace nccl_exporter::exporter
