// SPDX-License-Identifier: Apache-2.0
// An entry holds for as long as all that its labels are made of is the same.
#include "exporter/label_cache.h"

#include <string>
#include <tuple>
#include <utility>

#include "exporter/series_labels.h"

namespace nccl_exporter {
namespace {

// All that the labels of a communicator are made of, besides its process.
auto PartsOf(const CommunicatorSnapshot& c) {
  return std::tie(c.generation, c.id, c.name, c.rank, c.nodes, c.api_version, c.nccl_version, c.timing_source,
                  c.timing_reason, c.sampling_state, c.sampling_reason, c.gpu_index, c.gpu_uuid, c.pci_bus_id);
}

auto PartsOf(const ProcessSnapshot& p) {
  return std::tie(p.uid, p.pid, p.host_name, p.plugin_version, p.identity, p.rank_numbers_process);
}

// What a user claims with a communicator: all its ranks in the job, whatever they are called and number.
Labels CommunicatorOfJob(Labels labels) {
  std::erase_if(labels, [](const Label& label) {
    return label.name == "comm_name" || label.name == "rank" || label.name == "gpu";
  });
  return labels;
}

template <typename... Types>
std::tuple<std::remove_cvref_t<Types>...> Copy(const std::tuple<Types...>& parts) {
  return parts;
}

}  // namespace

struct LabelCache::CommunicatorEntry {
  decltype(Copy(PartsOf(std::declval<const CommunicatorSnapshot&>()))) parts;
  CommunicatorLabelSets sets;
  Claim claim;
  uint64_t used_in_sweep = 0;
};

struct LabelCache::ProcessEntry {
  decltype(Copy(PartsOf(std::declval<const ProcessSnapshot&>()))) parts;
  SharedLabels process;
  SharedLabels others;
  Claim process_claim;
  Claim others_claim;
  std::map<uint32_t, CommunicatorEntry> communicators;  // by slot
  uint64_t used_in_sweep = 0;
};

LabelCache::LabelCache(const MetricSwitches& switches) : switches_(switches) {}
LabelCache::~LabelCache() = default;

const CommunicatorLabelSets& LabelCache::Of(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator) {
  auto& communicators = EntryOf(process).communicators;
  const auto [place, is_new] = communicators.try_emplace(communicator.slot);
  CommunicatorEntry& entry = place->second;
  entry.used_in_sweep = sweep_;
  if (is_new || entry.parts != PartsOf(communicator)) {
    has_replaced_ |= !is_new;
    entry.parts = PartsOf(communicator);
    Labels series = CommunicatorLabels(process, communicator);
    entry.claim = ClaimFor(process.uid, CommunicatorOfJob(series), series);
    entry.sets = {.series = Intern(std::move(series)),
                  .communicator_info = Intern(CommunicatorInfoLabels(communicator)),
                  .rank_info = Intern(RankInfoLabels(process, communicator))};
  }
  return entry.sets;
}

const SharedLabels& LabelCache::OfProcess(const ProcessSnapshot& process) { return EntryOf(process).process; }

const SharedLabels& LabelCache::OfOthers(const ProcessSnapshot& process) { return EntryOf(process).others; }

LabelCache::ProcessEntry& LabelCache::EntryOf(const ProcessSnapshot& process) {
  std::unique_ptr<ProcessEntry>& place = processes_[process.file];
  if (place == nullptr) {
    place = std::make_unique<ProcessEntry>();
    Fill(*place, process);
  } else if (place->parts != PartsOf(process)) {
    has_replaced_ = true;
    Fill(*place, process);
  }
  place->used_in_sweep = sweep_;
  return *place;
}

void LabelCache::Fill(ProcessEntry& entry, const ProcessSnapshot& process) {
  entry.parts = PartsOf(process);
  Labels labels = ProcessLabels(process), others = OtherCommunicatorLabels(process);
  entry.process_claim = ClaimFor(process.uid, Labels(labels), labels);
  entry.others_claim = ClaimFor(process.uid, Labels(others), others);
  entry.process = Intern(std::move(labels));
  entry.others = Intern(std::move(others));
  entry.communicators.clear();
}

LabelCache::Claim LabelCache::ClaimFor(uint64_t uid, const Labels& claimed, Labels& labels) {
  std::weak_ptr<const uint64_t>& place = claims_[claimed];
  Claim claim = place.lock();
  if (claim == nullptr) {
    claim = std::make_shared<const uint64_t>(uid);
    place = claim;
  } else if (*claim != uid) {
    labels.push_back({"uid", std::to_string(uid)});
    return nullptr;
  }
  return claim;
}

SharedLabels LabelCache::Intern(Labels labels) {
  std::erase_if(labels, [this](const Label& label) {
    const bool is_other = label.name == "comm" && label.value == kOtherCommunicator;
    return !switches_.Keeps(label.name) && !is_other;
  });
  std::weak_ptr<const LabelSet>& place = interned_[labels];
  SharedLabels set = place.lock();
  if (set == nullptr) {
    set = std::make_shared<const LabelSet>(std::move(labels));
    place = set;
    ++made_;
  }
  return set;
}

void LabelCache::Sweep() {
  size_t forgotten = std::erase_if(processes_, [&](const auto& item) { return item.second->used_in_sweep != sweep_; });
  for (auto& [segment, process] : processes_) {
    forgotten +=
        std::erase_if(process->communicators, [&](const auto& item) { return item.second.used_in_sweep != sweep_; });
  }
  if (std::exchange(has_replaced_, false) || forgotten != 0) {
    std::erase_if(interned_, [](const auto& item) { return item.second.expired(); });
    std::erase_if(claims_, [](const auto& item) { return item.second.expired(); });
  }
  ++sweep_;
}

}  // namespace nccl_exporter
