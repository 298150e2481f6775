// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter extension run`, `check` and `list`: their flags, and the loop of pulls.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "exporter/cli/commands.h"
#include "exporter/cli/pulls.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/extension/check.h"
#include "exporter/extension/extension_host.h"
#include "exporter/findings/words.h"
#include "exporter/http/http_server.h"
#include "exporter/text/duration_text.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostExtensions = 16;

struct ExtensionFlags {
  std::vector<std::string> names;
  std::vector<std::string> folders{kExtensionFolder};
  std::vector<std::string> settings;  // NAME.KEY=VALUE
  ExtensionPlaces places;
  std::string socket;
  PullRequest pull;
  std::atomic<size_t>* said = nullptr;  // of `check`: hash of the latest line of all its processes
};

void Say(const std::string& line) { Fail(kSuccess, PrintablePath(line)); }

// NAME in --set, by the name of the command line.
std::string ShortName(const std::string& name) {
  std::string stem = std::filesystem::path(name).stem();
  constexpr std::string_view kBeginning = "libnccl-exporter-extension-";
  return stem.starts_with(kBeginning) ? stem.substr(kBeginning.size()) : stem;
}

// The first of --set that is of no extension, or an empty text. Without names all are meant.
std::string LostSetting(const ExtensionFlags& flags) {
  std::set<std::string> names;
  for (const std::string& name : flags.names) names.insert(ShortName(name));
  for (const std::string& setting : flags.settings)
    if (!names.empty() && !names.contains(setting.substr(0, setting.find('.')))) return setting;
  return "";
}

// `name` as on the command line. Throws as ExtensionLibrary does.
std::unique_ptr<ExtensionLibrary> Load(const ExtensionFlags& flags, const std::string& name) {
  const std::string short_name = ShortName(name);
  std::map<std::string, std::string> own;
  for (const std::string& setting : flags.settings) {
    const size_t dot = setting.find('.'), equals = setting.find('=');
    if (setting.substr(0, dot) == short_name)
      own[setting.substr(dot + 1, equals - dot - 1)] = setting.substr(equals + 1);
  }
  return std::make_unique<ExtensionLibrary>(
      name, flags.folders, std::move(own),
      [short_name, said = flags.said](bool, const std::string& text) {
        const std::string line = "extension " + short_name + ": " + text;
        const size_t hash = std::hash<std::string>()(line);
        if (said == nullptr || said->exchange(hash) != hash) Say(line);
      });
}

std::string CapabilitiesText(uint32_t capabilities) {
  std::string text;
  for (const auto& [bit, name] : {std::pair{NCCL_EXT_LABELS, "labels"},
                                  {NCCL_EXT_FAMILIES, "families"},
                                  {NCCL_EXT_SINK, "sink"}})
    if ((capabilities & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

int Run(const ExtensionFlags& flags) {
  std::vector<std::unique_ptr<ExtensionLibrary>> extensions;
  for (const std::string& name : flags.names) {
    extensions.push_back(Load(flags, name));
    if (!extensions.back()->Create()) throw std::runtime_error(name + " refuses its configuration");
    const uint32_t capabilities = extensions.back()->extension().capabilities;
    for (const auto& [bit, place, flag] :
         {std::tuple{NCCL_EXT_LABELS, &flags.places.labels_directory,
                     "labels go nowhere without --labels.dir"},
          {NCCL_EXT_FAMILIES, &flags.socket, "families go nowhere without --socket"},
          {NCCL_EXT_SINK, &flags.places.output_directory, "files go nowhere without --output.dir"}})
      if ((capabilities & bit) != 0 && place->empty())
        Say("extension " + ShortName(name) + ": its " + flag);
  }
  BlockEndingSignals();
  ExtensionHost host(std::move(extensions), flags.places, Say);
  HttpServer server([&host](const HttpRequest&) {
    return HttpResponse{.content_type = std::string(ContentType(Format::kProtobuf)),
                        .headers = {},
                        .body = {},
                        .shared_body = host.Page()};
  });
  if (!flags.socket.empty()) {
    if (const std::string fault = server.Start({flags.socket}); !fault.empty())
      throw std::runtime_error(fault);
  }
  PullUntilSignal(flags.pull, [&host](std::optional<std::string_view> answer, int64_t asked_ns) {
    return answer && host.See(*answer, asked_ns);
  });
  return kSuccess;
}

int Check(ExtensionFlags flags) {
  void* const shared = ::mmap(nullptr, sizeof(*flags.said), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared != MAP_FAILED) flags.said = new (shared) std::atomic<size_t>(0);
  size_t failed = 0;
  for (const std::string& name : flags.names) {
    for (const CheckResult& result : CheckExtension([&] { return Load(flags, name); })) {
      fmt::print("{} {}: {}{}\n", result.fault.empty() ? "ok  " : "FAIL", name, result.test,
                 PrintablePath(result.fault.empty() ? "" : ": " + result.fault));
      failed += !result.fault.empty();
    }
  }
  return failed == 0 ? kSuccess : kRuntimeFailure;
}

// An extension may need settings to claim anything.
std::string ClaimsText(const ExtensionFlags& flags, const std::string& name) {
  try {
    return ClaimsOf([&] { return Load(flags, name); });
  } catch (const std::runtime_error& fault) {
    return std::string("not known, ") + fault.what();
  }
}

// Extensions of the command line, else all of the folders.
int List(ExtensionFlags flags) {
  constexpr std::string_view kBeginning = "libnccl-exporter-extension-", kEnd = ".so";
  std::set<std::string> names(flags.names.begin(), flags.names.end());
  for (const std::string& folder : names.empty() ? flags.folders : std::vector<std::string>()) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string file = entry.path().filename();
      if (file.starts_with(kBeginning) && file.ends_with(kEnd))
        names.insert(file.substr(kBeginning.size(), file.size() - kBeginning.size() - kEnd.size()));
    }
  }
  int code = kSuccess;
  for (const std::string& name : names) {
    try {
      const auto library = Load(flags, name);
      fmt::print("{} {}: {} ({}); claims of a test answer: {}\n", library->extension().name,
                 PrintablePath(library->extension().version),
                 CapabilitiesText(library->extension().capabilities),
                 PrintablePath(library->path()), PrintablePath(ClaimsText(flags, name)));
    } catch (const std::runtime_error& fault) {
      code = Fail(kRuntimeFailure, PrintablePath(name + ": " + fault.what()));
    }
  }
  return code;
}

void AddCommonFlags(CLI::App& app, ExtensionFlags& flags, bool needs_names) {
  auto* const names = app.add_option(
      "NAME", flags.names, "Extensions in their order: short names, or paths, which have a slash.");
  names->expected(needs_names ? 1 : 0, static_cast<int>(kMostExtensions));
  if (needs_names) names->required();
  app.add_option("--path", flags.folders, "Folder of extensions. May be given several times.")
      ->default_str(kExtensionFolder);
  AddChecked(
      app, "--set",
      [&flags](const std::string& value) {
        const size_t dot = value.find('.'), equals = value.find('=');
        if (dot == 0 || equals == std::string::npos || dot >= equals - 1)
          return std::string("is not NAME.KEY=VALUE");
        flags.settings.push_back(value);
        return std::string();
      },
      "Setting of an extension: NAME.KEY=VALUE. May be given several times.");
}

void AddRunFlags(CLI::App& app, ExtensionFlags& flags) {
  AddCommonFlags(app, flags, true);
  AddPullFlags(app, flags.pull);
  app.add_option("--labels.dir", flags.places.labels_directory,
                 "Folder into which labels go: that of the daemon's --labels.dir.");
  app.add_option("--socket", flags.socket,
                 "Unix socket at which families are served: that of the daemon's "
                 "--extension.socket.");
  app.add_option("--output.dir", flags.places.output_directory,
                 "Folder of files of extensions, in a folder of each.");
  app.add_option("--output.files", flags.places.most_files,
                 "Files that are kept of each extension; the first names go.")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  AddChecked(
      app, "--interval",
      [&flags](const std::string& value) {
        const auto interval = ParseDuration(value);
        if (!interval || *interval < std::chrono::seconds(1) || *interval > std::chrono::hours(1))
          return std::string("is not a duration from 1s to 1h");
        flags.pull.interval = *interval;
        return std::string();
      },
      "Time from one answer of the daemon to the next.")
      ->default_str("15s");
}

template <typename AddFlags, typename RunCommand>
Command Made(std::string name, std::string help, AddFlags add_flags, RunCommand run) {
  const auto flags = std::make_shared<ExtensionFlags>();
  return {.name = std::move(name),
          .help = std::move(help),
          .add_flags = [flags, add_flags](CLI::App& app) { add_flags(app, *flags); },
          .run =
              [flags, run](const Options&) {
                const std::string lost = LostSetting(*flags);
                if (!lost.empty())
                  return Fail(kBadUsage,
                              PrintablePath("--set " + lost + ": no such extension here"));
                try {
                  return run(*flags);
                } catch (const std::runtime_error& fault) {
                  return Fail(kRuntimeFailure, PrintablePath(fault.what()));
                }
              }};
}

}  // namespace

Command ExtensionRunCommand() {
  return Made("extension run",
              "Let extensions see the daemon's answers, in a process of their own.", AddRunFlags,
              Run);
}

Command ExtensionCheckCommand() {
  return Made(
      "extension check", "Test whether extensions keep to the interface.",
      [](CLI::App& app, ExtensionFlags& flags) { AddCommonFlags(app, flags, true); }, Check);
}

Command ExtensionListCommand() {
  return Made(
      "extension list", "Print the extensions that are there.",
      [](CLI::App& app, ExtensionFlags& flags) { AddCommonFlags(app, flags, false); }, List);
}

}  // namespace nccl_exporter::exporter
