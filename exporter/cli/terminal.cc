// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // second screen, no cursor
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

// As xterm sends them; the second form of an arrow is that of the keypad in application mode.
constexpr std::array<std::pair<std::string_view, Key>, 10> kKeys{{
    {"q", Key::kEnd},
    {"Q", Key::kEnd},
    {"k", Key::kUp},
    {"j", Key::kDown},
    {"\x1b[A", Key::kUp},
    {"\x1bOA", Key::kUp},
    {"\x1b[B", Key::kDown},
    {"\x1bOB", Key::kDown},
    {"\x1b[5~", Key::kPageUp},
    {"\x1b[6~", Key::kPageDown},
}};

// Bytes of the control sequence that `typed` begins with; 1 where it begins with none.
size_t SequenceBytes(std::string_view typed) {
  if (typed.starts_with("\x1bO")) return std::min<size_t>(typed.size(), 3);
  if (!typed.starts_with("\x1b[")) return 1;
  const auto end = std::find_if(typed.begin() + 2, typed.end(),
                                [](char byte) { return byte >= 0x40 && byte <= 0x7E; });
  return static_cast<size_t>(end - typed.begin()) + (end == typed.end() ? 0 : 1);
}

void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the terminal is gone; the next Wait() returns kEnd
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

}  // namespace

Key TakeKey(std::string& typed) {
  const std::string taken = typed.substr(0, SequenceBytes(typed));
  typed.erase(0, taken.size());
  const auto* const row =
      std::ranges::find(kKeys, taken, [](const auto& key) { return key.first; });
  return row == kKeys.end() ? Key::kNothing : row->second;
}

bool Terminal::IsThere() {
  const char* const term = std::getenv("TERM");
  const bool is_dumb = term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
  return !is_dumb && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
}

bool Terminal::HasColours() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

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

size_t Terminal::columns() { return WindowSize().ws_col; }
size_t Terminal::rows() { return WindowSize().ws_row; }

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
  if (!typed_.empty()) return TakeKey(typed_);
  std::array<pollfd, 2> polled{pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                               pollfd{.fd = signals_, .events = POLLIN, .revents = 0}};
  if (::poll(polled.data(), polled.size(), static_cast<int>(limit.count())) <= 0)
    return Key::kNothing;
  if (polled[1].revents != 0) {
    signalfd_siginfo signal{};
    const bool is_read = ::read(signals_, &signal, sizeof signal) == sizeof signal;
    return is_read && signal.ssi_signo != SIGWINCH ? Key::kEnd : Key::kNothing;
  }
  std::array<char, 256> bytes{};
  const ssize_t size = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (size <= 0) return Key::kEnd;
  typed_.assign(bytes.data(), static_cast<size_t>(size));
  return TakeKey(typed_);
}

}  // namespace nccl_exporter::exporter
