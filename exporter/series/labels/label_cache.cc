// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/labels/label_cache.h"

#include <iterator>
#include <tuple>
#include <utility>

#include "exporter/series/labels/series_labels.h"

namespace nccl_exporter::exporter {
namespace {

// All fields of a communicator that its labels are made of. Its process has the others. An entry of
// the cache is valid while these fields stay the same.
auto PartsOf(const collector::CommunicatorSnapshot& c) {
  return std::tie(c.generation, c.id, c.name, c.rank, c.nodes, c.numbers, c.api_version,
                  c.nccl_version, c.timing_source, c.timing_reason, c.gpu_index, c.gpu_uuid,
                  c.pci_bus_id, c.adapter);
}

auto PartsOf(const collector::ProcessSnapshot& p) {
  return std::tie(p.uid, p.pid, p.host_name, p.plugin_version, p.identity, p.numbers,
                  p.first_communicator, p.chained);
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
  bool is_paid = false;  // its user's budget has borne it, with other labels of the site

  bool is_complete() const {
    return sets.series && sets.communicator_info && sets.rank_info && sets.rank_names;
  }
};

struct LabelCache::ProcessEntry {
  decltype(Copy(PartsOf(std::declval<const collector::ProcessSnapshot&>()))) parts;
  decltype(collector::ProcessSnapshot::site_labels) site_labels;
  SharedLabels process;
  SharedLabels others;
  SharedLabels environment;
  std::map<uint32_t, CommunicatorEntry> communicators;  // by slot
  uint64_t used_in_sweep = 0;
};

LabelCache::LabelCache(const MetricFilter& filter, const NewSetLimits& series_limits,
                       const NewSetLimits& info_limits)
    : filter_(filter), series_budget_(series_limits), info_budget_(info_limits) {}
LabelCache::~LabelCache() = default;

void LabelCache::SetTime(int64_t now_ns) {
  series_budget_.SetTime(now_ns);
  info_budget_.SetTime(now_ns);
}

// An entry is complete before it is inserted: if memory runs out, the next scrape must not find
// half of one.
const CommunicatorLabelSets& LabelCache::Of(const collector::ProcessSnapshot& process,
                                            const collector::CommunicatorSnapshot& communicator) {
  auto& communicators = EntryOf(process).communicators;
  auto place = communicators.find(communicator.slot);
  const bool is_here = place != communicators.end() && place->second.parts == PartsOf(communicator);
  // A set for which there was no budget is tried again at each scrape.
  const bool is_done =
      is_here && (place->second.is_complete() || place->second.used_in_sweep == sweep_);
  if (!is_done) {
    has_replaced_ |= place != communicators.end();
    const uint64_t uid = process.uid;
    CommunicatorEntry entry{.parts = PartsOf(communicator), .sets = {}};
    if (is_here) entry.sets = place->second.sets;
    entry.is_paid = is_here && place->second.is_paid;
    auto& [series, communicator_info, rank_info, rank_names] = entry.sets;
    if (!series)
      series = Intern(WithUserLabels(CommunicatorLabels(process, communicator), process), uid,
                      series_budget_, entry.is_paid);
    // Without series there are no others.
    if (series && !communicator_info)
      communicator_info =
          Intern(CommunicatorInfoLabels(communicator), uid, info_budget_, entry.is_paid);
    if (series && !rank_info)
      rank_info =
          Intern(RankInfoLabels(process, communicator, !filter_.has_user_labels_everywhere()), uid,
                 info_budget_, entry.is_paid);
    if (series && !rank_names)
      rank_names = Intern(RankNameLabels(process, communicator), uid, info_budget_, entry.is_paid);
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

const SharedLabels& LabelCache::OfEnvironment(const collector::ProcessSnapshot& process) {
  return EntryOf(process).environment;
}

LabelCache::ProcessEntry& LabelCache::EntryOf(const collector::ProcessSnapshot& process) {
  const auto make = [&](SharedLabels& set, Labels (*labels_of)(const collector::ProcessSnapshot&),
                        bool is_paid) {
    set = Intern(WithUserLabels(labels_of(process), process), process.uid, series_budget_, is_paid);
  };
  const auto fill = [&](ProcessEntry& entry) {
    if (!entry.process) make(entry.process, ProcessLabels, false);
    if (!entry.others) make(entry.others, OtherCommunicatorLabels, false);
    if (!entry.process || entry.environment) return;
    Labels labels = EnvironmentLabels(process);
    if (!labels.empty())
      entry.environment = Intern(std::move(labels), process.uid, info_budget_, false);
  };
  auto place = processes_.find(process.file);
  if (place == processes_.end() || place->second.parts != PartsOf(process)) {
    has_replaced_ |= place != processes_.end();
    ProcessEntry entry{.parts = PartsOf(process),
                       .site_labels = process.site_labels,
                       .process = {},
                       .others = {},
                       .environment = {},
                       .communicators = {}};
    fill(entry);
    place = processes_.insert_or_assign(process.file, std::move(entry)).first;
  } else if (ProcessEntry& entry = place->second; entry.site_labels != process.site_labels) {
    // The site's doing: no user pays for the same series with other labels.
    has_replaced_ = true;
    make(entry.process, ProcessLabels, entry.process != nullptr);
    make(entry.others, OtherCommunicatorLabels, entry.others != nullptr);
    for (auto& [slot, communicator] : entry.communicators) {
      communicator.is_paid |= communicator.is_complete();
      communicator.sets = {};
      communicator.used_in_sweep = 0;
    }
    entry.site_labels = process.site_labels;
  } else if (entry.used_in_sweep != sweep_) {
    fill(entry);
  }
  place->second.used_in_sweep = sweep_;
  return place->second;
}

Labels LabelCache::WithUserLabels(Labels labels, const collector::ProcessSnapshot& process) const {
  if (filter_.has_user_labels_everywhere())
    std::ranges::move(UserLabels(process), std::back_inserter(labels));
  return labels;
}

SharedLabels LabelCache::Intern(Labels labels, uint64_t uid, NewSetBudget& budget, bool is_paid) {
  std::erase_if(labels, [this](const Label& label) {
    const bool is_other = label.name == "comm" && label.value == kOtherCommunicator;
    return !filter_.Keeps(label.name) && !is_other;
  });
  // Weak, so that a set lives only as long as an entry or a scrape that is still sent uses it.
  const auto place = interned_.find(labels);
  SharedLabels set = place == interned_.end() ? nullptr : place->second.lock();
  if (set != nullptr || !(is_paid || budget.Take(uid))) return set;
  std::weak_ptr<const LabelSet>& of_set = interned_[labels];
  set = std::make_shared<const LabelSet>(std::move(labels));
  of_set = set;
  ++made_;
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
