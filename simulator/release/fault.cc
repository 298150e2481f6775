// SPDX-License-Identifier: Apache-2.0
#include "simulator/release/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

namespace nccl_exporter::sim {
namespace {

constexpr int kAnyLater = std::numeric_limits<int>::max();
constexpr FaultParameter kNone{};

constexpr std::array<FaultTraits, kCountOf<Fault>> kFaults{{
    {Fault::kDriftSelfSend,
     "drift-self-send",
     22600,
     23100,
     {kNone, kNone},
     "the device counts sends to oneself and empty parts, and the host does not; later events come "
     "too early, with the times of older work"},
    {Fault::kDriftGraph,
     "drift-graph",
     22603,
     23100,
     {kNone, kNone},
     "with --graph: the host does not count replays after an eager call; they show times of older "
     "work"},
    {Fault::kDriftBroadcast,
     "drift-broadcast",
     22900,
     kAnyLater,
     {kNone, kNone},
     "unless NCCL_ALLGATHERV_ENABLE=0: the device counts Broadcasts of several roots in one group, "
     "from 2.31 on any Broadcast, and the host does not: as drift-self-send"},
    {Fault::kHostAhead,
     "host-ahead",
     22600,
     kAnyLater,
     {{{"after", 10}, kNone}},
     "after `after` launches of a communicator the host counts one too many; events come late, "
     "with the times of later work"},
    {Fault::kDeviceAhead,
     "device-ahead",
     22600,
     kAnyLater,
     {{{"after", 10}, kNone}},
     "after `after` launches of a communicator the device counts one too many; events come too "
     "early, with the times of older work"},
    {Fault::kRingOverrun,
     "ring-overrun",
     22700,
     kAnyLater,
     {{{"late", 20000000}, {"every", 50000000}}},
     "every `every` ns the thread that polls is blocked for `late` ns; after more than 64 work "
     "items it finds newer times"},
    {Fault::kLostStart,
     "lost-start",
     22700,
     23100,
     {{{"every", 7}, kNone}},
     "in every n-th launch the first channel reports its stop on a handle of earlier work, and no "
     "start"},
    {Fault::kLostKernel,
     "lost-kernel",
     22600,
     kAnyLater,
     {{{"every", 23}, kNone}},
     "in every n-th launch the first channel loses its stop, or both start and stop, alternately"},
    {Fault::kStuck,
     "stuck",
     22600,
     kAnyLater,
     {{{"after", 20}, kNone}},
     "after `after` launches of a communicator the host waits on one channel for a counter that "
     "never comes"},
    {Fault::kBackwards,
     "backwards",
     22700,
     kAnyLater,
     {{{"every", 7}, kNone}},
     "in every n-th launch stops lie before starts"},
    {Fault::kZero,
     "zero",
     22700,
     kAnyLater,
     {{{"every", 7}, kNone}},
     "in every n-th launch starts are 0, or stops, alternately"},
    {Fault::kEqual,
     "equal",
     22700,
     kAnyLater,
     {{{"every", 7}, kNone}},
     "in every n-th launch stops equal their starts"},
    {Fault::kJump,
     "jump",
     22700,
     kAnyLater,
     {{{"by", 5000000}, {"every", 7000000}}},
     "every `every` ns the GPU's clock jumps by `by` ns (may be negative)"},
    {Fault::kRasMask,
     "ras-mask",
     23100,
     kAnyLater,
     {{{"mask", 6}, {"every", 50000000}}},
     "every `every` ns an operator sets the event mask over RAS: to `mask` (6: no kernel events), "
     "and back"},
    {Fault::kAbortedTransfer,
     "aborted-transfer",
     22400,
     kAnyLater,
     {{{"every", 11}, kNone}},
     "in every n-th launch the steps of network operations that are reported end in the middle, "
     "and neither they nor the operations stop"},
    {Fault::kStaleTransfer,
     "stale-transfer",
     22700,
     kAnyLater,
     {{{"every", 3}, kNone}},
     "in every n-th launch an operation of a transport that stops none starts before each that is "
     "reported; the next one on its channel that is not reported stops it"},
}};
static_assert(IsInOrder(kFaults));

std::optional<int64_t> NumberIn(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string SetParameter(const FaultTraits& traits, std::string_view text,
                         std::array<int64_t, 2>& values) {
  const std::string_view name = text.substr(0, text.find('='));
  for (size_t i = 0; i < values.size(); ++i) {
    if (name.empty() || traits.parameters[i].name != name) continue;
    const std::optional<int64_t> value =
        NumberIn(text.substr(std::min(text.size(), name.size() + 1)));
    if (!value || (*value < 1 && name != "by"))
      return fmt::format("--fault {}: bad {}", traits.name, text);
    values[i] = *value;
    return "";
  }
  return fmt::format("--fault {} has no parameter {}", traits.name, name);
}

}  // namespace

const FaultTraits& TraitsOf(Fault fault) { return RowIn(kFaults, fault); }

std::string Faults::Add(std::string_view text, const Release& release) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto* const row = std::ranges::find(kFaults, name, &FaultTraits::name);
  if (row == kFaults.end()) return fmt::format("--fault {}: there is no such fault", name);
  if (release.nccl_version() < row->first_release || release.nccl_version() >= row->end_release) {
    return fmt::format("--fault {}: NCCL {} does not have it", name, release.nccl_version());
  }
  std::array<int64_t, 2> values{row->parameters[0].standard, row->parameters[1].standard};
  std::string_view rest = text.substr(std::min(text.size(), name.size() + 1));
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    if (std::string error = SetParameter(*row, one, values); !error.empty()) return error;
    rest = rest.substr(std::min(rest.size(), one.size() + 1));
  }
  parameters_[row->id] = values;
  return "";
}

std::vector<std::string_view> Faults::Names() const {
  std::vector<std::string_view> names;
  for (const auto& [fault, values] : parameters_) names.push_back(TraitsOf(fault).name);
  return names;
}

bool Faults::StrikesEvery(Fault fault, uint64_t launch) const {
  return Has(fault) && launch % static_cast<uint64_t>(Parameter(fault, 0)) == 0;
}

bool Faults::StrikesAfter(Fault fault, uint64_t launch) const {
  return Has(fault) && launch > static_cast<uint64_t>(Parameter(fault, 0));
}

bool Faults::IsEvenStrike(Fault fault, uint64_t launch) const {
  return Has(fault) && launch / static_cast<uint64_t>(Parameter(fault, 0)) % 2 == 0;
}

int64_t Faults::PolledNs(int64_t due_ns) const {
  if (!Has(Fault::kRingOverrun)) return due_ns;
  const int64_t late_ns = Parameter(Fault::kRingOverrun, 0);
  const int64_t into_ns = due_ns % Parameter(Fault::kRingOverrun, 1);
  return into_ns < late_ns ? due_ns - into_ns + late_ns : due_ns;
}

int64_t Faults::JumpNs(int64_t job_ns) const {
  if (!Has(Fault::kJump)) return 0;
  return job_ns / Parameter(Fault::kJump, 1) * Parameter(Fault::kJump, 0);
}

std::optional<uint32_t> Faults::RasMaskAt(int64_t job_ns) const {
  if (job_ns / Parameter(Fault::kRasMask, 1) % 2 == 0) return std::nullopt;
  return static_cast<uint32_t>(Parameter(Fault::kRasMask, 0));
}

std::string FaultHelp() {
  std::string help = "NAME or NAME:PARAMETER=VALUE,...: a fault of NCCL's events (repeatable):";
  for (const FaultTraits& fault : kFaults) {
    help += fmt::format("\n  {}", fault.name);
    for (const FaultParameter& parameter : fault.parameters) {
      if (!parameter.name.empty())
        help += fmt::format(" {}={}", parameter.name, parameter.standard);
    }
    help += fmt::format(": {}", fault.help);
  }
  return help;
}

}  // namespace nccl_exporter::sim
