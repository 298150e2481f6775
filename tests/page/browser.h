// SPDX-License-Identifier: Apache-2.0
// A real Chromium without a screen, led over its DevTools pipe: no port, no further library.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter {

class Browser {
 public:
  // Where Debian puts it; empty where there is none.
  static std::string Path();

  Browser();
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  void Open(const std::string& url);
  // Runs `script` in each page that is opened from now on, before the page's own scripts.
  void RunFirst(const std::string& script);
  // Size of the window in CSS pixels, and what the page's media queries see.
  void Resize(int width, int height, bool is_dark, bool is_printed = false);
  // The value of a JavaScript expression, or null where it throws.
  nlohmann::json Evaluate(const std::string& expression);
  // The whole page as PNG.
  std::string Screenshot();

  // Since the start: messages of level error, uncaught exceptions and breaches of the content
  // security policy. Requests that found no server are not among them.
  const std::vector<std::string>& errors() const { return errors_; }
  // URLs that were asked for.
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  nlohmann::json Call(const std::string& method,
                      nlohmann::json parameters = nlohmann::json::object());
  nlohmann::json Receive();
  void Note(const nlohmann::json& event);

  collector::ScratchDirectory profile_;
  pid_t pid_ = -1;
  int to_browser_ = -1;
  int from_browser_ = -1;
  int last_id_ = 0;
  std::string session_;
  std::string received_;
  std::vector<std::string> errors_;
  std::vector<std::string> requests_;
};

}  // namespace nccl_exporter
