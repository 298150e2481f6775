// SPDX-License-Identifier: Apache-2.0
// LastUsable, what is made of files that may be replaced at any time. Any thread.
#pragma once

#include <spdlog/spdlog.h>

#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace nccl_exporter::exporter {

// Every use reads the files again, and compares texts and not time stamps: so no replacement is
// missed. Files that are unusable leave in force what was made before, and the log says so once.
template <typename Files, typename Made>
class LastUsable {
 public:
  using Read = std::function<Files()>;
  // Throws what is wrong, one line. It gets what is in force, null at first.
  using Make = std::function<Made(const Files& files, const Made* in_force)>;

  // A fault of the files at the start is put into `error`; then there is nothing to use. `name` is
  // what the log calls the files.
  LastUsable(std::string name, Read read, Make make, std::string& error)
      : name_(std::move(name)), read_(std::move(read)), make_(std::move(make)), files_(read_()) {
    try {
      made_ = std::make_shared<const Made>(make_(files_, nullptr));
    } catch (const std::runtime_error& wrong) {
      error = wrong.what();
    }
  }

  std::shared_ptr<const Made> Current() {
    const std::lock_guard lock(mutex_);
    Update();
    return made_;
  }

  // Returns why the files as they are now are not in force; empty if they are.
  std::string FaultNow() {
    const std::lock_guard lock(mutex_);
    Update();
    return fault_;
  }

 private:
  void Update() {
    Files files = read_();
    if (files == files_) return;
    files_ = std::move(files);
    fault_.clear();
    try {
      made_ = std::make_shared<const Made>(make_(files_, made_.get()));
      spdlog::info("{}: read again", name_);
    } catch (const std::runtime_error& wrong) {
      fault_ = wrong.what();
      spdlog::error("keeping the previous {}: {}", name_, fault_);
    }
  }

  const std::string name_;
  const Read read_;
  const Make make_;
  std::mutex mutex_;   // guards what follows
  Files files_;        // that were tried last
  std::string fault_;  // of those
  std::shared_ptr<const Made> made_;
};

}  // namespace nccl_exporter::exporter
