// SPDX-License-Identifier: Apache-2.0
// Communicators of a fuzzed process: opened, found in the segment, closed.
#include "plugin/fuzz/callback_fuzz_session.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "plugin/fuzz/callback_fuzz_clock.h"

namespace nccl_exporter::plugin::fuzz {

namespace {

std::atomic<uint64_t> current_seed{0};

}  // namespace

void SetSeed(uint64_t seed) { current_seed.store(seed); }

void Fail(const char* format, ...) {
  std::fprintf(stderr,
               "callback_fuzz: seed %llu: ", static_cast<unsigned long long>(current_seed.load()));
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputs("\n", stderr);
  std::abort();
}

void Account::AddOperation(Function function, uint64_t message_bytes) {
  OfFunction& counts = functions[static_cast<size_t>(function)];
  const size_t size_class = static_cast<size_t>(SizeClassOf(message_bytes));
  counts.operations[size_class].fetch_add(1, std::memory_order_relaxed);
  counts.bytes[size_class].fetch_add(message_bytes, std::memory_order_relaxed);
}

Session::Session(bool with_kernel_timing) {
  std::string pattern = (std::filesystem::temp_directory_path() / "callback_fuzz-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) Fail("cannot make a directory like %s", pattern.c_str());
  directory_ = pattern;
  setenv("NCCL_EXPORTER_DIR", directory_.c_str(), 1);
  setenv("NCCL_EXPORTER_COMMUNICATORS", std::to_string(kSlots).c_str(), 1);
  setenv("NCCL_EXPORTER_RETENTION_SECONDS", "1", 1);
  setenv("NCCL_EXPORTER_KERNEL_TIMING", with_kernel_timing ? "on" : "off", 1);
  setenv("NCCL_EXPORTER_NETWORK_TIMING", "always", 1);
  setenv("NCCL_ALLGATHERV_ENABLE", "0", 1);  // without it, no kernel timing on API v6 and v7
}

Session::~Session() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Session::Map() {
  const std::filesystem::directory_iterator files(directory_);
  const std::string path = files->path();
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  fstat(file, &status);
  void* memory = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) Fail("cannot map %s", path.c_str());
  const auto* header = static_cast<const layout::SegmentHeader*>(memory);
  if (header->slot_count != kSlots + 1)
    Fail("the segment has %d slots", static_cast<int>(header->slot_count));
  header_.store(header,
                std::memory_order_release);  // `file` stays open: closing it would drop the lock
}

const layout::CommunicatorSlot& Session::SlotAt(uint32_t index) const {
  return *(reinterpret_cast<const layout::CommunicatorSlot*>(
               header_.load(std::memory_order_acquire) + 1) +
           index);
}

std::vector<uint64_t> Session::States() const {
  std::vector<uint64_t> states(kSlots);
  for (uint32_t i = 0; header_.load() != nullptr && i < kSlots; ++i)
    states[i] = SlotAt(i).state.load();
  return states;
}

// The slot into which init has put the communicator: named by its id, or, where init has none, new
// since before.
bool Session::FindSlot(Member& member, const Introduction& introduction,
                       const std::vector<uint64_t>& states_before) const {
  for (uint32_t i = 0; i < kSlots; ++i) {
    const layout::CommunicatorSlot& slot = SlotAt(i);
    const uint64_t state = slot.state.load();
    if (layout::StateOf(state) != layout::SlotState::kLive) continue;
    const bool is_new = layout::GenerationOf(state) != layout::GenerationOf(states_before[i]);
    const bool is_it = member.version >= 4 ? slot.communicator_id == introduction.id
                                           : is_new && slot.has_identity == 0;
    if (!is_it) continue;
    member.slot = i;
    member.generation = layout::GenerationOf(state);
    return true;
  }
  return false;
}

bool Session::WouldTakeUncheckedSlot() {
  const std::lock_guard members(members_lock_);
  int gone = 0, all = 0;
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->is_overflow) continue;
    ++all;
    gone += member->is_gone.load() ? 1 : 0;
  }
  return gone != 0 && all >= kSlots;
}

void Session::Open(Slot& berth, int version, Introduction introduction, bool is_mute,
                   bool is_orderly) {
  if (WouldTakeUncheckedSlot()) return;
  auto made = std::make_unique<Member>();
  Member& member = *made;
  member.version = version;
  member.is_mute = is_mute;
  member.is_orderly = is_orderly;
  introduction.id = member.id = id_.fetch_add(1) + 1;
  if (version >= 4)
    member.ranks = introduction.ranks > 0 ? static_cast<uint32_t>(introduction.ranks) : 0;

  std::unique_lock nameless(nameless_, std::defer_lock);
  if (version < 4) nameless.lock();
  const std::vector<uint64_t> states = States();
  static int masks[8];  // a copy of NCCL for each API version
  TableOf(version).Init(&member.context, &masks[version], introduction);
  // As NCCL reads it: another thread's init may be writing it.
  const int mask = std::atomic_ref(masks[version]).load(std::memory_order_relaxed);
  if (member.context == nullptr || mask == 0) Fail("init of v%d refused", version);
  member.reports_proxy = (mask & abi::kProxyOp) != 0;
  std::call_once(is_mapped_, [&] { Map(); });
  member.is_overflow = !FindSlot(member, introduction, states);
  if (member.is_overflow) overflow_contexts_.fetch_add(1);

  const std::lock_guard members(members_lock_);
  members_.push_back(std::move(made));
  berth.member.store(&member, std::memory_order_release);
}

uint64_t Session::NetworkOperationsOf(const Member& member) const {
  uint64_t operations = 0;
  if (member.is_overflow) return 0;
  for (const layout::NetworkDirectionBlock& direction : SlotAt(member.slot).network.directions)
    operations += direction.operations.load();
  return operations;
}

bool Session::AsksForSteps(const Member& member) const {
  return !member.is_overflow && SlotAt(member.slot).network.share_ppm.load() != 0;
}

void Session::Close(Slot& berth) {
  Member* member = berth.member.exchange(nullptr);
  if (member == nullptr) return;
  if (!member->is_overflow) {
    uint64_t unseen = 0;
    const layout::CommunicatorSlot& slot = SlotAt(member->slot);
    for (const layout::InFlightEntry& entry : slot.in_flight) {
      const bool may_have_none =
          member->reports_proxy || (entry.function & layout::kUntimedFlag) != 0;
      unseen += entry.ticket != 0 && entry.parts == 0 && may_have_none;
    }
    unseen_bound_.fetch_add(unseen);
  }
  member->is_leaving.store(true);
  TableOf(member->version).Finalize(member->context);
  member->is_gone.store(true);
  if (!member->is_overflow)
    former_[former_count_.fetch_add(1) % former_.size()].store(member->context);
}

bool Session::IsHere(uint64_t member_id) const {
  return std::ranges::any_of(berths_, [&](const Slot& berth) {
    const Member* member = berth.member.load();
    return member != nullptr && member->id == member_id;
  });
}

uint64_t Session::LossesOfAll() const {
  uint64_t sum = 0;
  for (int i = 0; i < kLossCount; ++i) sum += LossesOf(static_cast<Loss>(i));
  return sum;
}

void Session::CopySegment(const std::string& path) const {
  std::filesystem::copy_file(std::filesystem::directory_iterator(directory_)->path(), path,
                             std::filesystem::copy_options::overwrite_existing);
}

void Session::Clear() {
  constexpr uint64_t kRetentionNs = 1'000'000'000;
  for (Slot& berth : berths_) {
    const std::lock_guard users(berth.users);
    Close(berth);
  }
  Check();
  AdvanceClock(kRetentionNs + 1'000'000);
}

}  // namespace nccl_exporter::plugin::fuzz
