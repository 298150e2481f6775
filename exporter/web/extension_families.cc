// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/extension_families.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "exporter/cli/client/plain_get.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int kOk = 200;

// Families, samples and labels of an answer: more than its limits allow, and little memory.
constexpr size_t kMostParts = 200'000;

}  // namespace

std::string FaultOfExtensions(const std::vector<PlainFamily>& families) {
  std::set<std::string_view> names;
  size_t samples = 0;
  for (const PlainFamily& family : families) {
    if (!family.name.starts_with("nccl_ext_") || !IsPlainName(family.name) ||
        !names.insert(family.name).second)
      return "a family has no name of its own that begins with nccl_ext_";
    if (family.type != MetricType::kCounter && family.type != MetricType::kGauge)
      return "a family is neither a counter nor a gauge";
    if ((samples += family.samples.size()) > kMostExtensionSamplesInAll)
      return "it has more than 10,000 samples";
    std::set<Labels> series;
    for (const PlainSample& sample : family.samples) {
      Labels labels = sample.labels;
      std::ranges::sort(labels);
      for (size_t i = 0; i < labels.size(); ++i) {
        const std::string& name = labels[i].name;
        const bool is_new = i == 0 || labels[i - 1].name != name;
        if (!IsPlainLabelName(name) || !is_new)
          return "a label has no name, one of targets, or one twice";
      }
      if (!series.insert(std::move(labels)).second) return "a series is there twice";
    }
  }
  return "";
}

ExtensionFamilies::ExtensionFamilies(std::string socket) : socket_(std::move(socket)) {}

std::string ExtensionFamilies::Take(std::string_view answer) {
  auto families = ParseFamilies(answer, kMostParts);
  if (!families) return "its answer is not understood";
  std::string fault = FaultOfExtensions(*families);
  if (!fault.empty()) return fault;
  auto taken = std::make_shared<const std::vector<PlainFamily>>(std::move(*families));
  const std::lock_guard lock(mutex_);
  families_ = std::move(taken);
  return "";
}

void ExtensionFamilies::Fetch(Clock::time_point now) {
  if (socket_.empty()) return;
  const PlainAnswer answer = PlainGet({.server = {.host = "", .port = "", .socket = socket_},
                                       .path = "/metrics",
                                       .patience = kExtensionDeadline,
                                       .most_bytes = kMostExtensionAnswerBytes});
  std::string fault = answer.fault;
  if (fault.empty() && answer.status != kOk) fault = "status " + std::to_string(answer.status);
  if (fault.empty()) fault = Take(answer.body);
  if (fault.empty()) taken_ = now;
  if (fault != std::exchange(said_, fault) && !fault.empty())
    spdlog::warn("no families of extensions from {}: {}", socket_, ValidUtf8(fault));
  const std::lock_guard lock(mutex_);
  faults_ += !fault.empty();
  if (now - taken_ > kExtensionRetention) families_.reset();
}

void ExtensionFamilies::AddTo(Exposition& exposition) const {
  std::shared_ptr<const std::vector<PlainFamily>> families;
  {
    const std::lock_guard lock(mutex_);
    families = families_;
  }
  if (families != nullptr) AddFamilies(*families, exposition);
}

uint64_t ExtensionFamilies::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

}  // namespace nccl_exporter::exporter
