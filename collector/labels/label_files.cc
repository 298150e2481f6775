// SPDX-License-Identifier: Apache-2.0
#include "collector/labels/label_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {
namespace {

[[noreturn]] void FailBySystem() { throw std::runtime_error(std::strerror(errno)); }

// Throws if another user may change what is there.
void CheckOwner(const struct stat& status) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid())
    throw std::runtime_error("belongs to user " + std::to_string(status.st_uid));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    throw std::runtime_error("users other than its owner may write to it");
}

// A link is followed: who may write to the directory has made it, and Kubernetes mounts such.
std::string ContentOf(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.number(), &status) != 0) FailBySystem();
  if (!S_ISREG(status.st_mode)) throw std::runtime_error("is no regular file");
  CheckOwner(status);
  std::string content(kLabelFileBytes + 1, '\0');
  const ssize_t bytes = ::pread(file.number(), content.data(), content.size(), 0);
  if (bytes < 0) FailBySystem();
  if (static_cast<size_t>(bytes) > kLabelFileBytes)
    throw std::runtime_error("has more than 64 KiB");
  content.resize(static_cast<size_t>(bytes));
  return content;
}

std::set<std::string> NamesIn(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> names(::opendir(directory.c_str()), ::closedir);
  struct stat status {};
  if (names == nullptr || ::fstat(::dirfd(names.get()), &status) != 0) FailBySystem();
  CheckOwner(status);
  std::set<std::string> found;
  while (const dirent* const entry = ::readdir(names.get())) {
    const std::string name = entry->d_name;
    if (!name.starts_with('.') && name.ends_with(".json")) found.insert(name);
  }
  if (found.size() > kMostLabelFiles) throw std::runtime_error("has more than 64 files");
  return found;
}

}  // namespace

LabelFiles::LabelFiles(std::string directory) : directory_(std::move(directory)) {}

std::optional<std::map<std::string, LabelFiles::Sight>> LabelFiles::List() {
  struct stat status {};
  directory_uid_ = ::stat(directory_.c_str(), &status) == 0 ? status.st_uid : 0;
  try {
    std::map<std::string, Sight> sights;
    for (const std::string& name : NamesIn(directory_)) {
      if (::stat((directory_ + '/' + name).c_str(), &status) == 0) sights.emplace(name, status);
    }
    fault_.clear();
    return sights;
  } catch (const std::exception& wrong) {
    if (fault_ != wrong.what()) Refuse(directory_, directory_uid_, fault_ = wrong.what());
    return std::nullopt;
  }
}

void LabelFiles::Refuse(const std::string& path, uint64_t uid, const std::string& why) {
  errors_.Add(SegmentError::kBadLabels, uid, path, why);
}

void LabelFiles::Read(const std::string& name, const Sight& sight) {
  const std::string path = directory_ + '/' + name;
  File& file = files_.try_emplace(name, File{.sight = sight}).first->second;
  file.sight = sight;
  try {
    file.rules = ParseLabelRules(ContentOf(path));
    file.is_wrong = false;
  } catch (const std::exception& wrong) {
    file.is_wrong = true;
    Refuse(path, sight.uid, wrong.what());
  }
}

void LabelFiles::Merge() {
  rules_.clear();
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    for (const auto& [target, labels] : file->second.rules) AddLabels(labels, rules_[target]);
  }
}

void LabelFiles::AddTo(NodeSnapshot& snapshot) {
  if (directory_.empty()) return;
  errors_.SetNow(snapshot.taken_realtime_ns);
  SegmentErrorCounts::Present present;
  if (const auto sights = List()) {
    bool has_changed =
        std::erase_if(files_, [&](const auto& file) { return !sights->contains(file.first); }) != 0;
    for (const auto& [name, sight] : *sights) {
      const auto known = files_.find(name);
      if (known != files_.end() && known->second.sight == sight) continue;
      Read(name, sight);
      has_changed = true;
    }
    if (has_changed) Merge();
  } else {
    present[{directory_uid_, SegmentError::kBadLabels}] = 1;
  }
  for (const auto& [name, file] : files_) {
    if (file.is_wrong) ++present[{file.sight.uid, SegmentError::kBadLabels}];
  }
  for (SegmentTrouble& trouble : errors_.Troubles(present))
    snapshot.segment_troubles.push_back(std::move(trouble));
  for (size_t i = 0; i < errors_.values().size(); ++i)
    snapshot.segment_errors[i] += errors_.values()[i];
  for (ProcessSnapshot& process : snapshot.processes)
    process.site_labels = LabelsOf(process, rules_);
}

}  // namespace nccl_exporter::collector
