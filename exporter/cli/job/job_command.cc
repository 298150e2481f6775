// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "exporter/cli/job/http_config.h"
#include "exporter/cli/job/job_list.h"
#include "exporter/cli/job/job_state.h"
#include "exporter/cli/terminal.h"

namespace nccl_exporter::exporter {

JobView ViewOfOutput() {
  JobView view;
  if (::isatty(STDOUT_FILENO) == 0) return view;
  view.has_colours = Terminal::HasColours();
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
    view.columns = size.ws_col;
  return view;
}

std::string AnswerAbout(const JobRequest& request, const AskPrometheus& ask, const JobView& view,
                        std::string& fault) {
  Warnings warnings;
  const AskPrometheus ask_and_note = [&](const std::string& query) {
    QueryAnswer answer = ask(query);
    for (const std::string& warning : answer.warnings) {
      if (warnings.size() < kMostWarnings && std::ranges::count(warnings, warning) == 0)
        warnings.push_back(warning);
    }
    return answer;
  };
  const JobChoice choice = ChooseJob(ask_and_note, request.wanted);
  fault = choice.fault;
  std::string text;
  if (choice.jobs.size() > 1) {
    text =
        request.is_json ? JobsJson(choice.jobs, warnings) : JobsScreen(choice.jobs, warnings, view);
  } else if (!choice.jobs.empty()) {
    const std::optional<JobState> state = JobStateOf(ask_and_note, choice.jobs.front(), fault);
    if (state)
      text = request.is_json ? JobJson(*state, warnings) : JobScreen(*state, warnings, view);
  }
  // What is missing may be in the part that did not come.
  if (text.empty() && !warnings.empty()) fault += "; the " + WarningText(warnings);
  return text;
}

std::string AnswerAbout(const JobRequest& request, const JobView& view, std::string& fault) {
  const std::optional<PrometheusAddress> address =
      ParsePrometheusAddress(request.prometheus, fault);
  if (!address) return "";
  std::optional<HttpConfig> config = ReadHttpConfig(request.http_config_file, fault);
  if (!config) return "";
  return AnswerAbout(request, PrometheusAt(*address, *std::move(config)), view, fault);
}

}  // namespace nccl_exporter::exporter
