// SPDX-License-Identifier: Apache-2.0
#include "tests/page/page.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include "exporter/testing/eventually.h"

namespace nccl_exporter {

using nlohmann::json;

std::string AxeScript() {
  std::ifstream file("/var/cache/nccl-exporter/page/node_modules/axe-core/axe.min.js");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string PageFile(const std::string& name) {
  std::ifstream file("tests/page/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Page::Page() : daemon_(segments_.path()) {
  Resize(kForms[0]);
  browser_.RunFirst(PageFile("states.js"));
}

bool Page::Show(const std::string& state, const std::string& hash) {
  browser_.Open("about:blank");  // else a change of the hash alone loads nothing
  browser_.Open(daemon_.Url("/?state=" + state + hash));
  return EventuallyShows("#node", "node-1");
}

bool Page::OpenFirst() {
  if (Evaluate("document.querySelector('#communicator-list summary') === null") == true)
    return true;
  Click("#communicator-list summary");
  return EventuallyShows("#communicator-list .collective figcaption", "Mean time");
}

void Page::Click(const std::string& selector) {
  Evaluate("document.querySelector('" + selector + "').click()");
}

std::string Page::Text(const std::string& selector) {
  const json text = Evaluate("document.querySelector('" + selector + "').textContent");
  return text.is_string() ? text.get<std::string>() : "";
}

json Page::Texts(const std::string& selector) {
  return Evaluate("[...document.querySelectorAll('" + selector +
                  "')].map((one) => one.textContent)");
}

bool Page::EventuallyShows(const std::string& selector, const std::string& text) {
  return exporter::Eventually([&] { return Text(selector).find(text) != std::string::npos; },
                              kPatienceSeconds);
}

json Page::OfChart(const std::string& title, const std::string& what) {
  return Evaluate(
      "(() => { const chart = [...document.querySelectorAll('.plot')].find((one) => "
      "one.textContent.startsWith('" +
      title + "')); const field = chart.querySelector('.field'); " + what + " })()");
}

}  // namespace nccl_exporter
