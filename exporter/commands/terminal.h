// SPDX-License-Identifier: Apache-2.0
// Terminal, the screen, keys and signals of `nccl-exporter top`. The destructor restores the screen. For the first
// thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace nccl_exporter {

enum class Key : uint8_t { kNone, kQuit, kSort, kPause, kUp, kDown, kOther };

class Terminal {
 public:
  // Standard input and output must be a terminal. Call before other threads start: it blocks SIGINT, SIGTERM, SIGHUP
  // and SIGWINCH for all of them. Throws std::system_error.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static bool IsThere();
  size_t columns() const;
  size_t rows() const;

  // Replaces the screen without flicker. `screen` has at most rows() lines.
  void Draw(const std::string& screen);

  // Waits for a key, for a change of the window's size (kOther), or for the time (kNone). A signal to end and the end
  // of the input are kQuit.
  Key Wait(std::chrono::milliseconds limit);

 private:
  Key ReadKey();
  Key TakeKey();

  termios before_{};
  const int signals_;  // descriptor
  std::string typed_;  // keys that came together and were not returned yet
};

}  // namespace nccl_exporter
