// SPDX-License-Identifier: Apache-2.0
#include "plugin/trace/trace_session.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "plugin/segment/own_file.h"

namespace nccl_exporter::plugin {

using trace_ring::Level;

// Loads each word of the request once, and keeps it if it is a proper one. Differences of times are
// taken only in the order that was checked, so none wraps.
trace_ring::Answer TraceSession::Keep(const trace_ring::ControlPage& page, uint64_t now_ns,
                                      uint64_t* wanted_level, uint64_t* end_realtime_ns) {
  using trace_ring::Answer;
  const uint64_t level = LoadRelaxed(page.level);
  const uint64_t begin = LoadRelaxed(page.begin_realtime_ns);
  const uint64_t end = LoadRelaxed(page.end_realtime_ns);
  const uint64_t chunks = LoadRelaxed(page.chunks);
  const uint64_t realtime_ns = ReadClock(CLOCK_REALTIME);
  *wanted_level = level;
  *end_realtime_ns = end;
  if (level == static_cast<uint64_t>(Level::kNone)) return Answer::kTaken;
  if (level != static_cast<uint64_t>(Level::kChannels) &&
      level != static_cast<uint64_t>(Level::kSteps))
    return Answer::kUnknownLevel;
  if (end <= begin || end - begin > trace_ring::kMostWindowNs || end <= realtime_ns ||
      (begin > realtime_ns && begin - realtime_ns > trace_ring::kMostAheadNs))
    return Answer::kWrongTimes;
  if (chunks < trace_ring::kFewestChunks || chunks > trace_ring::kMostChunks ||
      !std::has_single_bit(chunks))
    return Answer::kWrongRing;
  StoreRelease(level_, level);
  StoreRelease(begin_ns_, now_ns + (begin > realtime_ns ? begin - realtime_ns : 0));
  StoreRelease(end_ns_, now_ns + (end - realtime_ns));
  StoreRelease(has_communicator_, LoadRelaxed(page.has_communicator));
  StoreRelease(communicator_id_, LoadRelaxed(page.communicator_id));
  StoreRelease(chunk_mask_, chunks - 1);
  return Answer::kTaken;
}

// A request with records is settled when it is over; every other one at once.
std::optional<uint64_t> TraceSession::Take(uint64_t now_ns) {
  const auto is_over = [&] {
    return session() == 0 || now_ns >= LoadRelaxed(end_ns_) + trace_ring::kGraceNs;
  };
  if (LoadRelaxed(*requested_) == LoadRelaxed(taken_) && !is_over()) return {};
  if (is_taking_.exchange(true, std::memory_order_acquire)) return {};  // another thread is
  const uint64_t generation = LoadAcquire(file_->control.generation);
  const bool is_new = generation != LoadRelaxed(taken_);
  std::optional<uint64_t> network_until_ns;
  if (is_new || is_over()) StoreRelease(session_, 0);
  if (is_new) {
    uint64_t level = 0, end_realtime_ns = 0, session = 0;
    const trace_ring::Answer answer = Keep(file_->control, now_ns, &level, &end_realtime_ns);
    if (answer == trace_ring::Answer::kTaken) {
      network_until_ns = level == static_cast<uint64_t>(Level::kSteps) ? end_realtime_ns : 0;
      if (level != static_cast<uint64_t>(Level::kNone)) {
        sessions_ = sessions_ % trace_ring::kSessionMask + 1;
        session = sessions_;
      }
    }
    StoreRelaxed(taken_, generation);
    trace_ring::ControlPage& page = file_->control;
    StoreRelaxed(page.answer, static_cast<uint64_t>(answer));
    StoreRelaxed(page.session, session);
    StoreRelease(page.answered, generation);
    StoreRelease(session_, session);
  }
  if (session() == 0) StoreRelaxed(settled_, generation);
  StoreRelease(is_taking_, false);
  return network_until_ns;
}

Level TraceSession::LevelOf(uint64_t call_ns, uint64_t communicator_id) const {
  const uint64_t before = session();
  if (before == 0) return Level::kNone;
  const uint64_t level = LoadAcquire(level_);
  const bool is_in_window = LoadAcquire(begin_ns_) <= call_ns && call_ns < LoadAcquire(end_ns_);
  const bool is_wanted =
      LoadAcquire(has_communicator_) == 0 || LoadAcquire(communicator_id_) == communicator_id;
  if (!is_in_window || !is_wanted || LoadRelaxed(session_) != before) return Level::kNone;
  return static_cast<Level>(level);
}

bool TraceSession::TakeChunk(uint64_t session, uint64_t owner, uint64_t* chunk) {
  const uint64_t mask = LoadRelaxed(chunk_mask_);
  const uint64_t first = AddRelaxed(next_chunk_, 1);
  for (uint64_t i = 0; i < kLooks; ++i) {
    const uint64_t number = (first + i) & mask;
    trace_ring::Chunk& candidate = At(number);
    const uint64_t present = LoadRelaxed(candidate.owner);
    if (trace_ring::SessionOf(present) == session) continue;
    // Its reader looks at nothing in it before it sees the new owner.
    if (!CompareExchange(candidate.owner, present, owner | trace_ring::kBeingCleared)) continue;
    StoreRelaxed(candidate.closed_words, 0);
    for (AtomicU64& word : candidate.words) StoreRelaxed(word, 0);
    StoreRelease(candidate.owner, owner);
    *chunk = number;
    return true;
  }
  return false;
}

// The file.
namespace {

using trace_ring::File;

// Constants of <linux/memfd.h> and <linux/fcntl.h>, which old systems lack.
constexpr unsigned kCloseOnExec = 1, kAllowSealing = 2, kNoExecSeal = 8;
constexpr int kAddSeals = 1033;
constexpr int kSealSeal = 1, kSealShrink = 2, kSealGrow = 4;

// memfd_create is a function of glibc since 2.27, and of Linux since 3.17. Linux before 6.3 does
// not know kNoExecSeal, and later ones may refuse files without it (vm.memfd_noexec).
int CreateMemoryFile() {
  for (const unsigned flags :
       {kCloseOnExec | kAllowSealing | kNoExecSeal, kCloseOnExec | kAllowSealing}) {
    const long file = syscall(SYS_memfd_create, trace_ring::kFileName, flags);
    if (file >= 0 || errno != EINVAL) return static_cast<int>(file);
  }
  return -1;
}

// nullptr, or the step that failed.
const char* SizeAndMap(int file, File** mapped) {
  errno = EFBIG;
  if (MostFileBytes() < sizeof(File) || ftruncate(file, sizeof(File)) != 0)
    return "cannot size the file";
  if (fcntl(file, kAddSeals, kSealShrink | kSealGrow | kSealSeal) != 0)
    return "cannot seal the file";
  // By a system call, which fails where a store would be a SIGBUS.
  if (pwrite(file, "", 1, 0) != 1) return "no memory for the file";
  void* const memory = MapSparse(file, sizeof(File), MAP_SHARED | MAP_NORESERVE);
  if (memory == MAP_FAILED) return "cannot map the file";
  madvise(memory, sizeof(File), MADV_DONTDUMP);
  *mapped = static_cast<File*>(memory);
  return nullptr;
}

}  // namespace

TraceFile MakeTraceFile(uint64_t owner_start_ns) {
  int file = CreateMemoryFile();
  if (file < 0) return {.fault = "cannot create a file in memory"};
  file = AboveStandardStreams(file);
  if (file < 0) return {.fault = "no descriptor for a file in memory"};
  File* mapped = nullptr;
  const char* const fault = SizeAndMap(file, &mapped);
  if (fault != nullptr) {
    const int reason = errno;
    close(file);
    errno = reason;
    return {.fault = fault};
  }
  trace_ring::ControlPage& control = mapped->control;
  control.magic = trace_ring::kMagic;
  control.owner_start_ns = owner_start_ns;
  control.file_bytes = sizeof(File);
  StoreRelease(control.version, trace_ring::kVersion);
  return {.file = mapped};
}

}  // namespace nccl_exporter::plugin
