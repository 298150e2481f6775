// SPDX-License-Identifier: Apache-2.0
#include "exporter/extension/gifts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "exporter/text/utf8.h"
#include "proto/user_labels.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostNameBytes = 64;
constexpr size_t kMostRefusals = 16;  // that are named
constexpr const char* kNoCapability = "not among its capabilities";
constexpr const char* kNoName = "no name of 1 to 64 bytes";

bool IsText(const char* text, size_t most_bytes) {
  if (text == nullptr) return false;
  const std::string_view view(text);
  return view.size() <= most_bytes && ValidUtf8(view) == view;
}

bool IsFileName(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

MetricType TypeOf(nccl_ext_type type) {
  return type == NCCL_EXT_COUNTER ? MetricType::kCounter : MetricType::kGauge;
}

}  // namespace

std::optional<ExtensionSnapshot> ExtensionSnapshot::Of(std::string_view protobuf) {
  std::optional<std::vector<PlainFamily>> families = ParseFamilies(protobuf);
  if (!families) return std::nullopt;
  ExtensionSnapshot snapshot{.families = std::move(*families), .processes = {}};
  std::set<Labels> seen;
  for (const PlainFamily& family : snapshot.families) {
    if (family.name == "nccl_exporter_snapshot_timestamp_seconds" && !family.samples.empty())
      snapshot.time_ns = static_cast<int64_t>(family.samples.front().value * 1e9);
    if (family.name != "nccl_rank_info") continue;
    for (const PlainSample& sample : family.samples) {
      Labels identity;
      for (const char* name : {"uid", "namespace", "pod", "hostname", "pid"}) {
        const std::string* const value = LabelOf(sample.labels, name);
        identity.push_back({name, value == nullptr ? "" : *value});
      }
      if (seen.insert(std::move(identity)).second) snapshot.processes.push_back(&sample);
    }
  }
  return snapshot;
}

void ExtensionRound::Begin(const nccl_ext_extension& extension) {
  capabilities_ = extension.capabilities;
  prefix_ = "nccl_ext_" + std::string(extension.name) + '_';
  std::ranges::replace(prefix_, '-', '_');
  ++number_;
  has_claims_ = false;
  samples_ = appended_bytes_ = 0;
  series_.clear();
  refusals_.clear();
  gifts_ = {};
}

std::string ExtensionRound::Claims() const {
  std::set<std::string> all;
  for (const auto& [place, number] : label_claims_)
    if (number == number_) all.insert("label " + place.second);
  for (const PlainFamily& family : gifts_.families) all.insert("family " + family.name);
  return all.empty() ? "nothing" : fmt::format("{}", fmt::join(all, ", "));
}

nccl_ext_status ExtensionRound::Count(const char* kind, const char* name, nccl_ext_status status) {
  if (status == NCCL_EXT_OK || refusals_.size() == kMostRefusals) return status;
  std::string what = kind;
  if (name != nullptr) what += " \"" + std::string(name, ::strnlen(name, kMostNameBytes)) + '"';
  refusals_.emplace(what, status == NCCL_EXT_BAD_INDEX     ? "no such process"
                          : status == NCCL_EXT_NOT_CLAIMED ? "not claimed, or by another extension"
                                                           : why_);
  return status;
}

nccl_ext_status ExtensionRound::ClaimLabel(size_t process, const char* name) {
  if (process >= snapshot_.processes.size()) return NCCL_EXT_BAD_INDEX;
  why_ = (capabilities_ & NCCL_EXT_LABELS) == 0   ? kNoCapability
         : !IsText(name, kMostNameBytes)          ? kNoName
         : labels_of_[process] == kMostUserLabels ? "its process has 8 already"
         : IsUserLabelName(name, kMostNameBytes)  ? nullptr
         : IsPlainName(name)                      ? "reserved"
                                                  : "no name of a label";
  if (why_ != nullptr) return NCCL_EXT_REFUSED;
  const auto [claim, is_new] = label_claims_.emplace(std::pair(process, name), number_);
  labels_of_[process] += is_new;
  if (claim->second != number_) return NCCL_EXT_NOT_CLAIMED;
  has_claims_ = true;
  return NCCL_EXT_OK;
}

nccl_ext_status ExtensionRound::ClaimFamily(const char* name, const char* help,
                                            nccl_ext_type type) {
  const bool is_known = type == NCCL_EXT_COUNTER || type == NCCL_EXT_GAUGE;
  const std::string whole = prefix_ + (name == nullptr ? "" : name);
  const bool is_new = std::ranges::count(gifts_.families, whole, &PlainFamily::name) == 0;
  const bool has_total = whole.ends_with("_total");
  why_ = (capabilities_ & NCCL_EXT_FAMILIES) == 0           ? kNoCapability
         : !IsText(name, kMostNameBytes)                    ? kNoName
         : !IsPlainName(name)                               ? "no name of a family"
         : !IsText(help, kMostExtensionHelpBytes)           ? "no help of at most 512 bytes"
         : !is_known                                        ? "neither a counter nor a gauge"
         : (type == NCCL_EXT_COUNTER) != has_total          ? "counters alone end with _total"
         : gifts_.families.size() == kMostExtensionFamilies ? "more than 64"
         : !is_new                                          ? "claimed twice"
                                                            : nullptr;
  if (why_ != nullptr) return NCCL_EXT_REFUSED;
  gifts_.families.push_back({.name = whole, .help = help, .type = TypeOf(type), .samples = {}});
  has_claims_ = true;
  return NCCL_EXT_OK;
}

nccl_ext_status ExtensionRound::SetLabel(size_t process, const char* name, const char* value) {
  if (process >= snapshot_.processes.size()) return NCCL_EXT_BAD_INDEX;
  if (!IsText(name, kMostNameBytes)) return Refuse(kNoName);
  const auto claim = label_claims_.find({process, name});
  if (claim == label_claims_.end() || claim->second != number_) return NCCL_EXT_NOT_CLAIMED;
  constexpr size_t kMostValueBytes = 64;  // as in a file of labels
  if (!IsText(value, kMostValueBytes) || *value == '\0') return Refuse("no value of 1 to 64 bytes");
  gifts_.labels[process][name] = value;
  return NCCL_EXT_OK;
}

nccl_ext_status ExtensionRound::AddSample(const char* family, size_t count,
                                          const char* const* names, const char* const* values,
                                          double value) {
  if (!IsText(family, kMostNameBytes)) return Refuse(kNoName);
  const auto place = std::ranges::find(gifts_.families, prefix_ + family, &PlainFamily::name);
  if (place == gifts_.families.end()) return NCCL_EXT_NOT_CLAIMED;
  if (count > kMostExtensionLabels) return Refuse("a sample has more than 16 labels");
  if (samples_ == kMostExtensionSamples) return Refuse("more than 2,000 samples of all families");
  Labels labels;
  for (size_t i = 0; i < count; ++i) {
    why_ = !IsText(names[i], kMostNameBytes) || !IsPlainLabelName(names[i])
               ? "a label of a sample has a reserved name, or none"
           : !IsText(values[i], kMostExtensionTextBytes)
               ? "a label of a sample has no value of at most 128 bytes"
           : LabelOf(labels, names[i]) != nullptr ? "a sample has a label twice"
                                                  : nullptr;
    if (why_ != nullptr) return NCCL_EXT_REFUSED;
    labels.push_back({names[i], values[i]});
  }
  Labels sorted = labels;
  std::ranges::sort(sorted);
  if (!series_.emplace(family, std::move(sorted)).second) return Refuse("a sample twice");
  ++samples_;
  place->samples.push_back({.labels = std::move(labels), .value = value});
  return NCCL_EXT_OK;
}

nccl_ext_status ExtensionRound::Append(const char* file, const void* bytes, size_t size) {
  why_ = (capabilities_ & NCCL_EXT_SINK) == 0                 ? kNoCapability
         : !IsText(file, kMostNameBytes) || !IsFileName(file) ? "no name of a file"
         : size > kMostExtensionFileBytes - appended_bytes_   ? "more than 16 MiB in all files"
                                                              : nullptr;
  if (why_ != nullptr) return NCCL_EXT_REFUSED;
  appended_bytes_ += size;
  gifts_.appended[file].append(static_cast<const char*>(bytes), size);
  return NCCL_EXT_OK;
}

}  // namespace nccl_exporter::exporter
