// SPDX-License-Identifier: Apache-2.0
// Messages of the DevTools protocol are JSON objects, each ended by a NUL, on descriptors 3 and 4
// of the browser.
#include "tests/page/browser.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <stdexcept>

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr int kAnswerMilliseconds = 60000;

std::string FromBase64(const std::string& text) {
  const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  for (const char digit : text) {
    if (digit == '=') break;
    bits = bits << 6 | static_cast<unsigned>(kDigits.find(digit));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

}  // namespace

std::string Browser::Path() {
  for (const char* path : {"/usr/bin/chromium-headless-shell", "/usr/bin/chromium"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

Browser::Browser() {
  std::array<int, 2> down{}, up{};
  if (pipe2(down.data(), O_CLOEXEC) != 0 || pipe2(up.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe");
  const std::string path = Path(), profile = "--user-data-dir=" + profile_.path();
  // Without a sandbox of its own, which root and containers cannot have: it sees our own page only.
  const std::vector<const char*> command{path.c_str(),
                                         "--headless",
                                         "--no-sandbox",
                                         "--disable-gpu",
                                         "--disable-dev-shm-usage",
                                         "--no-first-run",
                                         "--no-proxy-server",
                                         "--disable-background-networking",
                                         "--disable-component-update",
                                         "--remote-debugging-pipe",
                                         profile.c_str(),
                                         "about:blank",
                                         nullptr};
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    setenv("HOME", profile_.path().c_str(), 1);
    // Above 4 first, so that neither end overwrites the other.
    const int in = fcntl(down[0], F_DUPFD, 10), out = fcntl(up[1], F_DUPFD, 10),
              null = open("/dev/null", O_RDWR);
    dup2(in, 3);
    dup2(out, 4);
    close(in);
    close(out);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execv(path.c_str(), const_cast<char* const*>(command.data()));
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_browser_ = down[1];
  from_browser_ = up[0];
  const json target = Call("Target.createTarget", {{"url", "about:blank"}});
  session_ = Call("Target.attachToTarget", {{"targetId", target.at("targetId")}, {"flatten", true}})
                 .at("sessionId");
  for (const char* domain : {"Page.enable", "Runtime.enable", "Log.enable", "Network.enable"})
    Call(domain);
}

Browser::~Browser() {
  close(to_browser_);
  close(from_browser_);
  kill(-pid_, SIGKILL);  // its helpers, too: they write into the profile
  waitpid(pid_, nullptr, 0);
}

void Browser::Open(const std::string& url) { Call("Page.navigate", {{"url", url}}); }

void Browser::RunFirst(const std::string& script) {
  Call("Page.addScriptToEvaluateOnNewDocument", {{"source", script}});
}

void Browser::Resize(int width, int height, bool is_dark, bool is_printed) {
  Call("Emulation.setDeviceMetricsOverride",
       {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", width < 600}});
  Call("Emulation.setScrollbarsHidden", {{"hidden", true}});  // they would narrow the page
  const json scheme{{"name", "prefers-color-scheme"}, {"value", is_dark ? "dark" : "light"}};
  Call("Emulation.setEmulatedMedia",
       {{"media", is_printed ? "print" : ""}, {"features", json::array({scheme})}});
}

json Browser::Evaluate(const std::string& expression) {
  const json answer =
      Call("Runtime.evaluate",
           {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
  return answer.contains("exceptionDetails") ? json() : answer.at("result").value("value", json());
}

std::string Browser::Screenshot() {
  return FromBase64(Call("Page.captureScreenshot", {{"captureBeyondViewport", true}}).at("data"));
}

json Browser::Call(const std::string& method, json parameters) {
  json message{{"id", ++last_id_}, {"method", method}, {"params", std::move(parameters)}};
  if (!session_.empty()) message["sessionId"] = session_;
  const std::string text = message.dump() + '\0';
  if (write(to_browser_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("the browser does not listen");
  }
  while (true) {
    const json answer = Receive();
    if (answer.value("id", 0) != last_id_) {
      Note(answer);
    } else if (answer.contains("error")) {
      throw std::runtime_error(method + ": " + answer["error"].dump());
    } else {
      return answer.at("result");
    }
  }
}

json Browser::Receive() {
  size_t end = 0;
  while ((end = received_.find('\0')) == std::string::npos) {
    pollfd polled{.fd = from_browser_, .events = POLLIN, .revents = 0};
    std::array<char, 65536> part{};
    if (poll(&polled, 1, kAnswerMilliseconds) != 1)
      throw std::runtime_error("the browser does not answer");
    const ssize_t size = read(from_browser_, part.data(), part.size());
    if (size <= 0) throw std::runtime_error("the browser has gone");
    received_.append(part.data(), static_cast<size_t>(size));
  }
  const json message = json::parse(received_.substr(0, end));
  received_.erase(0, end + 1);
  return message;
}

void Browser::Note(const json& event) {
  const std::string method = event.value("method", "");
  if (method == "Network.requestWillBeSent") requests_.push_back(event["params"]["request"]["url"]);
  if (method == "Runtime.exceptionThrown")
    errors_.push_back(event["params"]["exceptionDetails"].dump());
  if (method == "Runtime.consoleAPICalled" && event["params"]["type"] == "error") {
    errors_.push_back(event["params"]["args"].dump());
  }
  if (method != "Log.entryAdded") return;
  const json& entry = event["params"]["entry"];
  const bool is_unreachable =
      entry.value("text", "").find("net::ERR_CONNECTION_") != std::string::npos;
  if (entry.value("level", "") == "error" && !is_unreachable) errors_.push_back(entry.dump());
}

}  // namespace nccl_exporter
