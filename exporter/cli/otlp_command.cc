// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter otlp`: its flags, and its loop of pulls.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/cli/client/http_config.h"
#include "exporter/cli/commands.h"
#include "exporter/cli/node_access.h"
#include "exporter/cli/pulls.h"
#include "exporter/exposition/gzip.h"
#include "exporter/otlp/metrics_request.h"
#include "exporter/otlp/pusher.h"
#include "exporter/otlp/settings.h"
#include "exporter/text/duration_text.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostAnswerOfReceiver = 64 << 10;

struct OtlpFlags {
  otlp::Settings settings;
  std::string endpoint_config_file, instance;
  std::string histograms = "explicit";
  std::string queue_directory;  // empty: in memory
  size_t queue_mib = 64;
  PullRequest pull;
};

PlainRequest PushOf(const otlp::Settings& settings) {
  return {.server = *settings.endpoint,
          .path = settings.endpoint->prefix.empty() ? "/" : "",
          .patience = *settings.timeout,
          .most_bytes = kMostAnswerOfReceiver,
          .host_field = settings.endpoint->HostField(),
          .fields = settings.fields,
          .tls = settings.tls};
}

Labels ResourceOf(const OtlpFlags& flags) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  Labels labels{{"service.name", "nccl-exporter"},
                {"service.instance.id", flags.instance.empty() ? NodeName() : flags.instance},
                {"host.name", host.data()}};
  if (const char* const node = std::getenv("NODE_NAME"); node != nullptr && *node != '\0')
    labels.push_back({"k8s.node.name", node});
  return labels;
}

// Pulls and queues until a signal; the pusher pushes meanwhile.
void Pull(const OtlpFlags& flags, otlp::Pusher& pusher) {
  using std::chrono::system_clock;
  otlp::MetricsRequests requests(ResourceOf(flags), flags.histograms == "explicit"
                                                        ? otlp::HistogramForm::kExplicit
                                                        : otlp::HistogramForm::kExponential);
  const int64_t start_ns = std::chrono::nanoseconds(system_clock::now().time_since_epoch()).count();
  PullUntilSignal(flags.pull, [&](std::optional<std::string_view> answer, int64_t asked_ns) {
    std::optional<std::vector<PlainFamily>> families;
    if (answer) families = ParseFamilies(*answer);
    const bool is_understood = families.has_value();
    if (!families) families.emplace();
    pusher.AddFamilies(start_ns, *families);
    std::string request = requests.Make(*std::move(families), asked_ns);
    pusher.Add(flags.settings.compression == "gzip" ? Gzip(request) : std::move(request));
    return is_understood;
  });
}

int Push(OtlpFlags flags) {
  otlp::Settings& settings = flags.settings;
  if (!flags.endpoint_config_file.empty()) {
    HttpConfig config = ReadHttpConfig(flags.endpoint_config_file);
    settings.fields = std::move(config.fields);
    settings.tls = std::move(config.tls);
  }
  otlp::Complete(settings, std::getenv);
  flags.pull.interval = *settings.interval;
  BlockEndingSignals();
  otlp::RequestQueue queue(flags.queue_directory, flags.queue_mib << 20);
  otlp::Pusher pusher(PushOf(settings), queue,
                      [](const std::string& line) { Fail(kSuccess, line); });
  Pull(flags, pusher);
  pusher.Finish();
  return Fail(kSuccess, "ended; " + std::to_string(queue.count()) + " requests were not pushed");
}

void AddDuration(CLI::App& app, const std::string& name,
                 std::optional<std::chrono::milliseconds>& duration, const std::string& help) {
  const auto store = [&duration](const std::string& value) {
    const auto parsed = ParseDuration(value);
    if (!parsed || *parsed < std::chrono::milliseconds(1))
      return "write seconds, or a duration like 15s or 500ms";
    duration = std::chrono::floor<std::chrono::milliseconds>(*parsed);
    return "";
  };
  AddChecked(app, name, store, help);
}

// The first of the values is the default.
void AddChoice(CLI::App& app, const std::string& name, const std::vector<std::string>& values,
               std::string& choice, const std::string& help) {
  app.add_option(name, choice, help)->check(CLI::IsMember(values))->default_str(values[0]);
}

void AddOtlpFlags(CLI::App& app, OtlpFlags& flags) {
  const auto store_endpoint = [&flags](const std::string& value) {
    std::string fault;
    flags.settings.endpoint = otlp::EndpointAt(value, fault);
    return fault;
  };
  AddChecked(app, "--endpoint", store_endpoint,
             "Address of the receiver, http[s]://HOST[:PORT][/PREFIX]; /v1/metrics follows it.")
      ->default_str(otlp::kDefaultEndpoint);
  app.add_option("--endpoint.config.file", flags.endpoint_config_file,
                 "File with a login, TLS and headers for the receiver, as that of "
                 "--http.config.file. It replaces the variables of headers and certificates.");
  AddDuration(app, "--timeout", flags.settings.timeout,
              "Time for one request. The default is 10s.");
  AddChoice(app, "--compression", {"gzip", "none"}, flags.settings.compression,
            "Compression of requests.");
  AddChoice(app, "--histograms", {"explicit", "exponential"}, flags.histograms,
            "Form of histograms: explicit, or exponential where the daemon has native ones.");
  app.add_option("--queue.dir", flags.queue_directory,
                 "Directory of requests that wait. Without it they are in memory, and a restart "
                 "loses them.");
  app.add_option("--queue.size", flags.queue_mib, "MiB of requests that wait at most.")
      ->check(CLI::Range(1, 1 << 20))
      ->default_str("64");
  app.add_option("--instance", flags.instance,
                 "The service.instance.id, which Prometheus makes the label instance. The default "
                 "is the name of the node.");
  AddPullFlags(app, flags.pull);
  AddDuration(app, "--interval", flags.settings.interval,
              "Time between two pulls. The default is 15s.");
}

}  // namespace

Command OtlpCommand() {
  const auto flags = std::make_shared<OtlpFlags>();
  return {.name = "otlp",
          .help = "Push the metrics of the daemon to a receiver of OTLP/HTTP, until SIGTERM.",
          .add_flags = [flags](CLI::App& app) { AddOtlpFlags(app, *flags); },
          .run = [flags](const Options&) { return Push(*flags); }};
}

}  // namespace nccl_exporter::exporter
