// SPDX-License-Identifier: Apache-2.0
#include "exporter/job/job_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "exporter/commands/terminal.h"
#include "exporter/job/http_config.h"
#include "exporter/job/job_list.h"
#include "exporter/job/job_state.h"

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
  const JobChoice choice = ChooseJob(ask, request.wanted);
  if (choice.jobs.empty()) {
    fault = choice.fault;
    return "";
  }
  if (choice.jobs.size() > 1)
    return request.is_json ? JobsJson(choice.jobs) : JobsScreen(choice.jobs, view);
  const std::optional<JobState> state = JobStateOf(ask, choice.jobs.front(), fault);
  if (!state) return "";
  return request.is_json ? JobJson(*state) : JobScreen(*state, view);
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
