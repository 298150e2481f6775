// SPDX-License-Identifier: Apache-2.0
// The daemon's page in a browser, for one thread: a real daemon, and the states of states.js in the
// place of its answers.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "collector/testing/scratch_directory.h"
#include "tests/page/browser.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {

// The states that docs/page.md shows.
inline constexpr std::array kStates{"empty",     "quiet",  "straggler", "hang",
                                    "elsewhere", "killed", "many",      "unreadable"};

inline constexpr int kPatienceSeconds = 60;  // several steps of the history, on a busy machine

// Size and colors in which a reader may see the page.
struct Form {
  const char* name;
  int width, height;
  bool is_dark;
};
inline constexpr std::array kForms{Form{"light", 1200, 900, false}, Form{"dark", 1200, 900, true},
                                   Form{"phone", 390, 844, true}};

class Page {
 public:
  Page();

  // Opens a state of states.js. Returns whether it was drawn.
  bool Show(const std::string& state, const std::string& hash = "");
  void Resize(const Form& form) { browser_.Resize(form.width, form.height, form.is_dark); }
  // Opens the first communicator of the list, where there is one. Returns whether it was drawn.
  bool OpenFirst();
  void Click(const std::string& selector);

  nlohmann::json Evaluate(const std::string& expression) { return browser_.Evaluate(expression); }
  // The text of the first element that fits; empty where there is none.
  std::string Text(const std::string& selector);
  // The texts of all that fit.
  nlohmann::json Texts(const std::string& selector);
  bool EventuallyShows(const std::string& selector, const std::string& text);
  // The chart whose title begins like this: `what` is done with its `field`.
  nlohmann::json OfChart(const std::string& title, const std::string& what);

  const std::string& segment_directory() const { return segments_.path(); }
  Daemon& daemon() { return daemon_; }
  Browser& browser() { return browser_; }

 private:
  const collector::ScratchDirectory segments_;
  Daemon daemon_;
  Browser browser_;
};

// The rules of axe-core for people who see, hear or move otherwise; empty unless tools/fetch-axe
// has fetched it.
std::string AxeScript();
// Where the script ran first: what it finds serious, "rule: element", a line each. Without
// `preload` it asks for nothing by itself.
inline constexpr char kSeriousFindings[] =
    "axe.run(document, { preload: false, resultTypes: ['violations'] }).then((answer) => "
    "answer.violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')"
    ".flatMap(({ id, nodes }) => nodes.slice(0, 3).map((node) => `${id}: ${node.html}`)))";

// Content of a file of tests/page, which is next to the programs that Bazel starts.
std::string PageFile(const std::string& name);

}  // namespace nccl_exporter
