// SPDX-License-Identifier: Apache-2.0
#include "exporter/extension/extension_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "exporter/exposition/encoder.h"

namespace nccl_exporter::exporter {
namespace {

constexpr mode_t kFileMode = 0644, kFolderMode = 0755;
constexpr int64_t kBetweenLinesNs = 60'000'000'000;
constexpr size_t kMostMatters = 1000;  // said once: names of labels may be without end

// Writes all bytes to a file that is no link. Returns why not, or an empty text.
std::string Write(const std::string& path, int flags, std::string_view bytes) {
  const int file =
      ::open(path.c_str(), flags | O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kFileMode);
  if (file < 0) return path + ": " + std::strerror(errno);
  std::string fault;
  while (fault.empty() && !bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fault = path + ": " + std::strerror(errno);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  ::close(file);
  return fault;
}

}  // namespace

ExtensionHost::ExtensionHost(std::vector<std::unique_ptr<ExtensionLibrary>> extensions,
                             ExtensionPlaces places, Say say)
    : extensions_(std::move(extensions)), places_(std::move(places)), say_(std::move(say)) {
  for (const std::string& folder : {places_.labels_directory, places_.output_directory})
    if (!folder.empty()) ::mkdir(folder.c_str(), kFolderMode);
}

bool ExtensionHost::See(std::string_view protobuf, int64_t now_ns) {
  const std::optional<ExtensionSnapshot> snapshot = ExtensionSnapshot::Of(protobuf);
  if (!snapshot) return false;
  ExtensionRound round(*snapshot);
  Exposition exposition;
  for (const auto& extension : extensions_) {
    std::string failed;
    ExtensionGifts gifts = extension->Take(*snapshot, round, failed);
    SayOnce(*extension, "call", failed.empty() ? "" : failed + "() failed");
    for (const auto& [what, why] : round.refusals()) {
      if (said_.size() < kMostMatters && !said_.contains({extension.get(), what}))
        SayOnce(*extension, what, what + ": " + why);
    }
    SayGifts(*extension, gifts, now_ns);
    WriteLabels(*snapshot, *extension, gifts);
    Append(*extension, gifts);
    AddFamilies(gifts.families, exposition);
  }
  auto page = std::make_shared<std::string>();
  EncodeProtobuf(exposition, *page);
  const std::lock_guard lock(mutex_);
  page_ = std::move(page);
  return true;
}

std::shared_ptr<const std::string> ExtensionHost::Page() const {
  const std::lock_guard lock(mutex_);
  return page_;
}

// Renamed into place, and only if it has changed.
void ExtensionHost::WriteLabels(const ExtensionSnapshot& snapshot,
                                const ExtensionLibrary& extension, const ExtensionGifts& gifts) {
  if (places_.labels_directory.empty() ||
      (extension.extension().capabilities & NCCL_EXT_LABELS) == 0)
    return;
  using Names = std::map<std::string, std::string>;
  std::map<std::pair<std::string, std::string>, std::set<Names>> wanted;  // by pid and GPU
  for (size_t process = 0; process < snapshot.processes.size(); ++process) {
    const Labels& known = snapshot.processes[process]->labels;
    const auto text = [&known](const char* name) {
      const std::string* const value = LabelOf(known, name);
      return value == nullptr ? "" : *value;
    };
    const auto labels = gifts.labels.find(process);
    wanted[{text("pid"), text("gpu_uuid")}].insert(labels == gifts.labels.end() ? Names()
                                                                                : labels->second);
  }
  bool has_lost = false;
  nlohmann::json rules = nlohmann::json::array();
  for (const auto& [match, labels] : wanted) {
    const auto& [pid, gpu] = match;
    if (labels == std::set<Names>{Names()}) continue;
    if (pid.empty() || gpu.empty() || labels.size() > 1)
      has_lost = true;
    else
      rules.push_back({{"match", {{"pid", pid}, {"gpu_uuid", gpu}}}, {"labels", *labels.begin()}});
  }
  SayOnce(extension, "processes",
          has_lost ? "no labels for processes without gpu_uuid, or with pid and gpu_uuid of others"
                   : "");
  std::string text = rules.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (written_labels_[&extension] == text) return;
  const std::string name = "extension-" + std::string(extension.extension().name);
  const std::string hidden = places_.labels_directory + "/." + name,
                    path = places_.labels_directory + '/' + name + ".json";
  std::string fault = Write(hidden, O_TRUNC, text);
  if (fault.empty() && std::rename(hidden.c_str(), path.c_str()) != 0)
    fault = path + ": " + std::strerror(errno);
  SayOnce(extension, "labels", fault.empty() ? "" : "its labels are not written: " + fault);
  if (fault.empty()) written_labels_[&extension] = std::move(text);
}

void ExtensionHost::Append(const ExtensionLibrary& extension, const ExtensionGifts& gifts) {
  if (places_.output_directory.empty() || gifts.appended.empty()) return;
  const std::string folder = places_.output_directory + '/' + extension.extension().name;
  ::mkdir(folder.c_str(), kFolderMode);
  std::string first_fault;
  for (const auto& [name, bytes] : gifts.appended) {
    const std::string fault = Write(folder + '/' + name, O_APPEND, bytes);
    if (first_fault.empty()) first_fault = fault;
  }
  SayOnce(extension, "file", first_fault.empty() ? "" : "its file is not written: " + first_fault);
  std::error_code ignored;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    names.insert(entry.path().filename());
  for (; names.size() > places_.most_files; names.erase(names.begin()))
    std::filesystem::remove(folder + '/' + *names.begin(), ignored);
}

void ExtensionHost::SayGifts(const ExtensionLibrary& extension, const ExtensionGifts& gifts,
                             int64_t now_ns) {
  const std::string text =
      fmt::format("labels of {} processes, {} families, {} files", gifts.labels.size(),
                  gifts.families.size(), gifts.appended.size());
  auto& [said, said_ns] = said_gifts_[&extension];
  const bool is_early = now_ns >= said_ns && now_ns - said_ns < kBetweenLinesNs;
  if (text == said || (is_early && !said.empty())) return;
  said = text;
  said_ns = now_ns;
  say_("extension " + std::string(extension.extension().name) + ": " + text);
}

void ExtensionHost::SayOnce(const ExtensionLibrary& extension, const std::string& matter,
                            const std::string& text) {
  if (text != std::exchange(said_[{&extension, matter}], text) && !text.empty())
    say_("extension " + std::string(extension.extension().name) + ": " + text);
}

}  // namespace nccl_exporter::exporter
