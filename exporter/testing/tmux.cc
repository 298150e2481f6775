// SPDX-License-Identifier: Apache-2.0
#include "exporter/testing/tmux.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Below /tmp: the path of a socket has 107 bytes at most.
std::string OwnSocket() {
  static std::atomic<int> next = 0;
  return "/tmp/nccl-exporter-tmux-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

}  // namespace

Tmux::Tmux(const std::string& command, int columns, int rows) : socket_(OwnSocket()) {
  const Finished made = Run({"-f", "/dev/null", "new-session", "-d", "-x", std::to_string(columns),
                             "-y", std::to_string(rows), command});
  if (made.exit_code != 0) throw std::runtime_error("tmux: " + made.output);
}

Tmux::~Tmux() {
  Run({"kill-server"});
  std::error_code not_there;
  std::filesystem::remove(socket_, not_there);
}

void Tmux::Resize(int columns, int rows) {
  Run({"resize-window", "-x", std::to_string(columns), "-y", std::to_string(rows)});
}

void Tmux::Type(std::vector<std::string> keys) {
  keys.insert(keys.begin(), "send-keys");
  Run(std::move(keys));
}

Finished Tmux::Run(std::vector<std::string> arguments) const {
  std::vector<std::string> command{kTmux, "-S", socket_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunToEnd(std::move(command), {{"LC_ALL", "C.UTF-8"}, {"TERM", "screen"}});
}

}  // namespace nccl_exporter::exporter
