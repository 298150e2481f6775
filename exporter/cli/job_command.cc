// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter job`: one job, from Prometheus.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <memory>

#include "exporter/cli/client/http_address.h"
#include "exporter/cli/commands.h"
#include "exporter/cli/job/job_answer.h"
#include "exporter/cli/terminal.h"

namespace nccl_exporter::exporter {

void AddJobFlags(CLI::App& app, JobRequest& request) {
  const auto store = [&request](const std::string& value) {
    std::string fault;
    ParseHttpAddress(value, fault);
    request.prometheus = value;
    return fault;
  };
  AddChecked(app, "--prometheus", store,
             "Address of Prometheus, or of a server with its HTTP API: "
             "http[s]://HOST[:PORT][/PREFIX].")
      ->default_str(std::string(kDefaultPrometheus));
  app.add_option("--http.config.file", request.http_config_file,
                 "File with a login, TLS and headers, as promtool takes it: basic_auth, "
                 "authorization, tls_config, http_headers.");
  const auto add_label = [&](const std::string& name, const char* label, const std::string& help) {
    return app.add_option_function<std::string>(
        name, [&request, label](const std::string& value) { request.wanted[label] = value; },
        help + " of the job; '': it has none.");
  };
  add_label("--job", "nccl_job", "Name, as Slurm's id,");
  add_label("--namespace", "namespace", "Namespace");
  add_label("--cluster", "cluster", "Cluster");
  add_label("--uid", "uid", "Number of the owner")
      ->check(CLI::Range(uint32_t{0}, std::numeric_limits<uint32_t>::max()));
  app.add_flag("--json", request.is_json, "Print one JSON object.");
}

Command JobCommand() {
  const auto request = std::make_shared<JobRequest>();
  return {.name = "job",
          .help = "Print what Prometheus has of a job: firing alerts, and what the rules recorded.",
          .add_flags = [request](CLI::App& app) { AddJobFlags(app, *request); },
          .run =
              [request](const Options&) {
                std::string fault;
                const std::string text = AnswerAbout(*request, Terminal::columns(), fault);
                return text.empty() ? Fail(kRuntimeFailure, fault) : Print(text);
              }};
}

}  // namespace nccl_exporter::exporter
