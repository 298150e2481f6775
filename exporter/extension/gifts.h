// SPDX-License-Identifier: Apache-2.0
// ExtensionRound, claims and gifts of extensions for one answer of the daemon: behind
// nccl_ext_claims and nccl_ext_output. For one thread.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/exposition/plain_families.h"
#include "extension/nccl_exporter_extension.h"

namespace nccl_exporter::exporter {

// Limits of one extension and one answer. What is beyond is refused: NCCL_EXT_REFUSED.
inline constexpr size_t kMostExtensionFamilies = 64;
inline constexpr size_t kMostExtensionSamples = 2000;
inline constexpr size_t kMostExtensionLabels = 16;      // of a sample
inline constexpr size_t kMostExtensionTextBytes = 128;  // of a value of a label
inline constexpr size_t kMostExtensionHelpBytes = 512;
inline constexpr size_t kMostExtensionFileBytes = 16 << 20;  // appended, all files together

// One answer of the daemon as extensions see it.
struct ExtensionSnapshot {
  std::vector<PlainFamily> families;
  // Samples of nccl_rank_info, one for each process.
  std::vector<const PlainSample*> processes;
  int64_t time_ns = 0;

  // Nothing if the bytes are no answer.
  static std::optional<ExtensionSnapshot> Of(std::string_view protobuf);
};

struct ExtensionGifts {
  // By process: names and values.
  std::map<size_t, std::map<std::string, std::string>> labels;
  std::vector<PlainFamily> families;
  std::map<std::string, std::string> appended;  // by file
};

// The state of one answer. Labels that an extension has claimed are no other's.
class ExtensionRound {
 public:
  explicit ExtensionRound(const ExtensionSnapshot& snapshot) : snapshot_(snapshot) {}

  // The next calls are of this extension.
  void Begin(const nccl_ext_extension& extension);
  // Its gifts since Begin(). Claims that it has not used stay claimed.
  ExtensionGifts End() { return std::move(gifts_); }
  bool has_claims() const { return has_claims_; }
  // Claims since Begin(), each name once: `family nccl_ext_NAME_done_total, label team`, or
  // `nothing`.
  std::string Claims() const;
  // Notes the status that a claim or gift has just got, and returns it.
  nccl_ext_status Count(const char* kind, const char* name, nccl_ext_status status);
  // Claims and gifts since Begin() that were not taken: `label "rank"`, and the first reason. Of 16
  // names at most.
  const std::map<std::string, std::string>& refusals() const { return refusals_; }

  nccl_ext_status ClaimLabel(size_t process, const char* name);
  nccl_ext_status ClaimFamily(const char* name, const char* help, nccl_ext_type type);
  nccl_ext_status SetLabel(size_t process, const char* name, const char* value);
  nccl_ext_status AddSample(const char* family, size_t count, const char* const* names,
                            const char* const* values, double value);
  nccl_ext_status Append(const char* file, const void* bytes, size_t size);

 private:
  nccl_ext_status Refuse(const char* why) {
    why_ = why;
    return NCCL_EXT_REFUSED;
  }

  const ExtensionSnapshot& snapshot_;
  uint32_t capabilities_ = 0;
  std::string prefix_;  // of its families
  size_t number_ = 0;   // of the extension
  bool has_claims_ = false;
  std::map<std::pair<size_t, std::string>, size_t> label_claims_;  // process and name: extension
  std::map<size_t, size_t> labels_of_;                             // claimed labels by process
  size_t samples_ = 0, appended_bytes_ = 0;
  std::set<std::pair<std::string, Labels>> series_;
  std::map<std::string, std::string> refusals_;
  const char* why_ = nullptr;  // NCCL_EXT_REFUSED was returned last
  ExtensionGifts gifts_;
};

}  // namespace nccl_exporter::exporter
