// SPDX-License-Identifier: Apache-2.0
// Terminal, and the loop of snapshots, screens and keys of `nccl-exporter top`. It reads the
// segments itself, so it works without a daemon. For the first thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/commands/top_screen.h"

namespace nccl_exporter::exporter {

enum class Key : uint8_t { kNone, kQuit, kSort, kPause, kUp, kDown, kOther };

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

  static bool IsThere();
  size_t columns() const;
  size_t rows() const;

  // Replaces the screen without flicker. `screen` has at most rows() lines.
  void Draw(const std::string& screen);

  // Waits for a key, for a change of the window's size (kOther), or for the time (kNone). A signal
  // to end and the end of the input are kQuit.
  Key Wait(std::chrono::milliseconds limit);

 private:
  Key ReadKey();
  Key TakeKey();

  termios before_{};
  const int signals_;  // descriptor
  std::string typed_;  // keys that came together and were not returned yet
};

inline constexpr std::chrono::seconds kTopInterval{1};

using TopSnapshots = std::function<std::shared_ptr<const collector::NodeSnapshot>()>;

// Waits one interval and returns the screen of what happened in it.
std::string TopOnce(const TopSnapshots& snapshots, TopSort sort);

// Shows a screen per interval, until the user or a signal ends it.
void ShowTop(const TopSnapshots& snapshots, TopSort sort, Terminal& terminal);

}  // namespace nccl_exporter::exporter
