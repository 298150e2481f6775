// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/labels/label_cache.h"

#include <string>
#include <tuple>
#include <utility>

#include "exporter/series/labels/series_labels.h"

namespace nccl_exporter::exporter {
namespace {

// All fields of a communicator that its labels are made of. Its process has the others. An entry of
// the cache is valid while these fields stay the same.
auto PartsOf(const collector::CommunicatorSnapshot& c) {
  return std::tie(c.generation, c.id, c.name, c.rank, c.nodes, c.numbers, c.api_version,
                  c.nccl_version, c.timing_source, c.timing_reason, c.sampling_state,
                  c.sampling_reason, c.gpu_index, c.gpu_uuid, c.pci_bus_id);
}

auto PartsOf(const collector::ProcessSnapshot& p) {
  return std::tie(p.uid, p.pid, p.host_name, p.plugin_version, p.identity, p.numbers,
                  p.first_communicator);
}

template <typename... Types>
std::tuple<std::remove_cvref_t<Types>...> Copy(const std::tuple<Types...>& parts) {
  return parts;
}

}  // namespace

struct LabelCache::CommunicatorEntry {
  decltype(Copy(PartsOf(std::declval<const collector::CommunicatorSnapshot&>()))) parts;
  CommunicatorLabelSets sets;
  uint64_t used_in_sweep = 0;
};

struct LabelCache::ProcessEntry {
  decltype(Copy(PartsOf(std::declval<const collector::ProcessSnapshot&>()))) parts;
  SharedLabels process;
  SharedLabels others;
  std::map<uint32_t, CommunicatorEntry> communicators;  // by slot
  uint64_t used_in_sweep = 0;
};

LabelCache::LabelCache(const MetricFilter& filter) : filter_(filter) {}
LabelCache::~LabelCache() = default;

// An entry is complete before it is inserted: if memory runs out, the next scrape must not find
// half of one.
const CommunicatorLabelSets& LabelCache::Of(const collector::ProcessSnapshot& process,
                                            const collector::CommunicatorSnapshot& communicator) {
  auto& communicators = EntryOf(process).communicators;
  auto place = communicators.find(communicator.slot);
  if (place == communicators.end() || place->second.parts != PartsOf(communicator)) {
    has_replaced_ |= place != communicators.end();
    CommunicatorEntry entry{
        .parts = PartsOf(communicator),
        .sets = {.series = Intern(CommunicatorLabels(process, communicator)),
                 .communicator_info = Intern(CommunicatorInfoLabels(communicator)),
                 .rank_info = Intern(RankInfoLabels(process, communicator)),
                 .rank_names = Intern(RankNameLabels(process, communicator))}};
    place = communicators.insert_or_assign(communicator.slot, std::move(entry)).first;
  }
  place->second.used_in_sweep = sweep_;
  return place->second.sets;
}

const SharedLabels& LabelCache::OfProcess(const collector::ProcessSnapshot& process) {
  return EntryOf(process).process;
}

const SharedLabels& LabelCache::OfOthers(const collector::ProcessSnapshot& process) {
  return EntryOf(process).others;
}

LabelCache::ProcessEntry& LabelCache::EntryOf(const collector::ProcessSnapshot& process) {
  auto place = processes_.find(process.file);
  if (place == processes_.end() || place->second.parts != PartsOf(process)) {
    has_replaced_ |= place != processes_.end();
    ProcessEntry entry{.parts = PartsOf(process),
                       .process = Intern(ProcessLabels(process)),
                       .others = Intern(OtherCommunicatorLabels(process)),
                       .communicators = {}};
    place = processes_.insert_or_assign(process.file, std::move(entry)).first;
  }
  place->second.used_in_sweep = sweep_;
  return place->second;
}

SharedLabels LabelCache::Intern(Labels labels) {
  std::erase_if(labels, [this](const Label& label) {
    const bool is_other = label.name == "comm" && label.value == kOtherCommunicator;
    return !filter_.Keeps(label.name) && !is_other;
  });
  // Weak, so that a set lives only as long as an entry or a scrape that is still sent uses it.
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
  size_t forgotten = std::erase_if(
      processes_, [&](const auto& item) { return item.second.used_in_sweep != sweep_; });
  for (auto& [segment, process] : processes_) {
    forgotten += std::erase_if(process.communicators, [&](const auto& item) {
      return item.second.used_in_sweep != sweep_;
    });
  }
  // The walk over all interned sets is needed only if an entry went or was replaced.
  if (std::exchange(has_replaced_, false) || forgotten != 0) {
    std::erase_if(interned_, [](const auto& item) { return item.second.expired(); });
  }
  ++sweep_;
}

}  // namespace nccl_exporter::exporter
