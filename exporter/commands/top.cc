// SPDX-License-Identifier: Apache-2.0
#include "exporter/commands/top.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <thread>

#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // second screen, no cursor
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the terminal is gone; the next Wait() returns kQuit
    text.remove_prefix(static_cast<size_t>(written));
  }
}

winsize WindowSize() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    size.ws_col = 80;
    size.ws_row = 24;
  }
  return size;
}

int SignalDescriptor() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

using SteadyClock = std::chrono::steady_clock;

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch())
      .count();
}

void Apply(Key key, TopView& view) {
  if (key == Key::kPause) view.is_paused = !view.is_paused;
  if (key == Key::kUp && view.first_rank > 0) --view.first_rank;
  if (key == Key::kDown) ++view.first_rank;
  if (key != Key::kSort) return;
  view.sort = static_cast<TopSort>((static_cast<size_t>(view.sort) + 1) % kTopSorts.size());
  view.first_rank = 0;
}

size_t RanksOf(const collector::NodeSnapshot& node) {
  size_t ranks = 0;
  for (const collector::ProcessSnapshot& process : node.processes)
    ranks += process.communicators.size();
  return ranks;
}

}  // namespace

bool Terminal::IsThere() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

Terminal::Terminal() : signals_(SignalDescriptor()) {
  if (signals_ < 0 || ::tcgetattr(STDIN_FILENO, &before_) != 0) {
    throw std::system_error(errno, std::generic_category(), "terminal");
  }
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  Write(kEnter);
}

Terminal::~Terminal() {
  Write(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  ::close(signals_);
}

size_t Terminal::columns() const { return WindowSize().ws_col; }
size_t Terminal::rows() const { return WindowSize().ws_row; }

void Terminal::Draw(const std::string& screen) {
  std::string text = "\x1b[H";
  for (size_t begin = 0; begin < screen.size();) {
    const size_t end = screen.find('\n', begin);
    if (begin != 0) text += "\r\n";  // none after the last line, which would scroll
    text.append(screen, begin, end - begin).append("\x1b[K");
    begin = end + 1;
  }
  Write(text += "\x1b[J");
}

Key Terminal::Wait(std::chrono::milliseconds limit) {
  if (!typed_.empty()) return TakeKey();
  std::array<pollfd, 2> polled{pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                               pollfd{.fd = signals_, .events = POLLIN, .revents = 0}};
  if (::poll(polled.data(), polled.size(), static_cast<int>(limit.count())) <= 0) return Key::kNone;
  if (polled[1].revents != 0) {
    signalfd_siginfo signal{};
    const bool is_read = ::read(signals_, &signal, sizeof signal) == sizeof signal;
    return is_read && signal.ssi_signo != SIGWINCH ? Key::kQuit : Key::kOther;
  }
  return ReadKey();
}

Key Terminal::ReadKey() {
  std::array<char, 256> bytes{};
  const ssize_t size = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (size <= 0) return Key::kQuit;
  typed_.assign(bytes.data(), static_cast<size_t>(size));
  return TakeKey();
}

// The first key of what was typed: a byte, or a sequence of three.
Key Terminal::TakeKey() {
  const bool is_sequence = typed_.starts_with("\x1b[") || typed_.starts_with("\x1bO");
  const std::string key = typed_.substr(0, is_sequence ? 3 : 1);
  typed_.erase(0, key.size());
  if (key == "\x1b[A" || key == "\x1bOA" || key == "k") return Key::kUp;
  if (key == "\x1b[B" || key == "\x1bOB" || key == "j") return Key::kDown;
  if (key == "q" || key == "Q") return Key::kQuit;
  if (key == "s") return Key::kSort;
  return key == "p" ? Key::kPause : Key::kOther;
}

std::string TopOnce(const TopSnapshots& snapshots, TopSort sort) {
  NodeJudge judge;
  judge.Record(*snapshots(), MonotonicNs());
  std::this_thread::sleep_for(kTopInterval);
  const auto node = snapshots();
  judge.Record(*node, MonotonicNs());
  return TopScreen(*node, judge, {.sort = sort});
}

void ShowTop(const TopSnapshots& snapshots, TopSort sort, Terminal& terminal) {
  NodeJudge judge;
  TopView view{.sort = sort, .has_colours = true};
  std::shared_ptr<const collector::NodeSnapshot> node;
  SteadyClock::time_point next = SteadyClock::now();
  for (Key key = Key::kNone; key != Key::kQuit;) {
    Apply(key, view);
    if (node == nullptr || (SteadyClock::now() >= next && !view.is_paused)) {
      node = snapshots();
      judge.Record(*node, MonotonicNs());
    }
    if (SteadyClock::now() >= next) next = SteadyClock::now() + kTopInterval;
    view.first_rank = std::min(view.first_rank, RanksOf(*node));
    view.columns = terminal.columns();
    view.rows = terminal.rows();
    terminal.Draw(TopScreen(*node, judge, view));
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now());
    key = terminal.Wait(std::max(wait, std::chrono::milliseconds(0)));
  }
}

}  // namespace nccl_exporter::exporter
