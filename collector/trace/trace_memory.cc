// SPDX-License-Identifier: Apache-2.0
#include "collector/trace/trace_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace nccl_exporter::collector {
namespace {

using trace_ring::AtomicU64;
using trace_ring::Chunk;
using trace_ring::File;
using trace_ring::Level;

// 4 MiB: 0.5 s of 8,000 channels a millisecond. Steps are more.
constexpr uint64_t kChunksOfChannels = 1024;

uint64_t Load(const AtomicU64& word) { return word.load(std::memory_order_acquire); }
void Store(AtomicU64& word, uint64_t value) { word.store(value, std::memory_order_release); }

std::string Reason(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// Opens what `path` leads to, if it is a file in memory without a name and with the size of a trace
// file. The process may put anything else in its place, whatever the link's text says: a device,
// whose opening alone has effects, or a file of another user. So it is looked at by a descriptor
// that opens nothing (O_PATH), and then opened as the same inode.
FileDescriptor OpenMemory(const std::string& path, std::string& fault) {
  constexpr long kTmpfsMagic = 0x01021994;  // of <linux/magic.h>
  const FileDescriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status {};
  struct statfs system {};
  if (!found.is_open() || ::fstat(found.number(), &status) != 0 ||
      ::fstatfs(found.number(), &system) != 0) {
    fault = Reason("its trace file cannot be examined");
    return {};
  }
  if (!S_ISREG(status.st_mode) || status.st_nlink != 0 || system.f_type != kTmpfsMagic ||
      static_cast<uint64_t>(status.st_size) != sizeof(File)) {
    fault = "its trace file is of another version";
    return {};
  }
  const std::string same = "/proc/self/fd/" + std::to_string(found.number());
  FileDescriptor file(::open(same.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) fault = Reason("its trace file cannot be opened");
  return file;
}

// Why a file in memory may not be mapped; empty: it may.
std::string FaultIn(int file) {
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0) return Reason("its trace file cannot be examined");
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  return (seals & kNeeded) == kNeeded ? "" : "its trace file is of another version";
}

File* Map(int file) {
  void* const memory = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<File*>(memory);
}

bool IsOf(const File& file, int64_t owner_start_ns) {
  return Load(file.control.version) == trace_ring::kVersion &&
         file.control.magic == trace_ring::kMagic && file.control.file_bytes == sizeof(File) &&
         file.control.owner_start_ns == static_cast<uint64_t>(owner_start_ns);
}

// Descriptors of the process that are trace files.
std::vector<std::string> TraceFilesOf(pid_t pid, std::string& fault) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/fd";
  const std::string wanted = std::string("/memfd:") + trace_ring::kFileName + " (deleted)";
  std::vector<std::string> found;
  DIR* const listing = ::opendir(directory.c_str());
  if (listing == nullptr) {
    fault = Reason("its files cannot be listed");
    return found;
  }
  while (const dirent* const entry = ::readdir(listing)) {
    const std::string path = directory + "/" + entry->d_name;
    std::array<char, 256> target{};
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
    if (length > 0 && std::string_view(target.data(), static_cast<size_t>(length)) == wanted)
      found.push_back(path);
  }
  ::closedir(listing);
  if (found.empty())
    fault =
        "it takes no requests: its plugin is older, it has NCCL_EXPORTER_TRACE=0, or its log says "
        "why";
  return found;
}

}  // namespace

// A child that was forked from another training process has that one's file as well.
std::unique_ptr<TraceMemory> TraceMemory::Open(pid_t pid, int64_t owner_start_ns,
                                               std::string& fault) {
  for (const std::string& path : TraceFilesOf(pid, fault)) {
    FileDescriptor file = OpenMemory(path, fault);
    if (!file.is_open()) continue;
    fault = FaultIn(file.number());
    if (!fault.empty()) continue;
    File* const memory = Map(file.number());
    if (memory == nullptr) {
      fault = Reason("its trace file cannot be mapped");
      continue;
    }
    if (!IsOf(*memory, owner_start_ns)) {
      ::munmap(memory, sizeof(File));
      fault = "its trace file is of another process or version";
      continue;
    }
    if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
      ::munmap(memory, sizeof(File));
      fault = "another request is running";
      return nullptr;
    }
    fault.clear();
    return std::unique_ptr<TraceMemory>(new TraceMemory(std::move(file), memory));
  }
  return nullptr;
}

TraceMemory::TraceMemory(FileDescriptor file, File* memory)
    : file_(std::move(file)), memory_(memory) {}

TraceMemory::~TraceMemory() {
  if (has_asked_) {
    Store(memory_->control.level, static_cast<uint64_t>(Level::kNone));
    Store(memory_->control.generation, generation_ + 1);
  }
  ::munmap(memory_, sizeof(File));
}

bool TraceMemory::Ask(const Request& request, std::string& fault) {
  chunks_ = request.level == Level::kSteps      ? trace_ring::kMostChunks
            : request.level == Level::kChannels ? kChunksOfChannels
                                                : 0;
  // The pages that the plugin will write are there before it writes: were they not, a shortage of
  // memory would be its own.
  const auto bytes = static_cast<off_t>(trace_ring::UsedBytes(chunks_));
  if (::fallocate(file_.number(), 0, 0, bytes) != 0) {
    fault = Reason("no memory for its records");
    return false;
  }
  read_words_.assign(chunks_, 0);
  owners_.assign(chunks_, 0);
  lost_before_.clear();
  for (const auto& of_slot : memory_->lost) {
    for (const AtomicU64& lost : of_slot) lost_before_.push_back(Load(lost));
  }
  trace_ring::ControlPage& control = memory_->control;
  Store(control.level, static_cast<uint64_t>(request.level));
  Store(control.begin_realtime_ns, static_cast<uint64_t>(request.begin_realtime_ns));
  Store(control.end_realtime_ns, static_cast<uint64_t>(request.end_realtime_ns));
  Store(control.chunks, chunks_);
  Store(control.has_communicator, request.communicator ? 1 : 0);
  Store(control.communicator_id, request.communicator.value_or(0));
  generation_ = Load(control.generation) + 1;
  Store(control.generation, generation_);
  has_asked_ = true;
  return true;
}

std::optional<trace_ring::Answer> TraceMemory::answer() const {
  if (!has_asked_ || Load(memory_->control.answered) != generation_) return std::nullopt;
  return static_cast<trace_ring::Answer>(Load(memory_->control.answer));
}

void TraceMemory::Read(const Visit& visit) {
  if (answer() != trace_ring::Answer::kTaken) return;
  for (uint64_t i = 0; i < chunks_; ++i) ReadChunk(i, visit);
}

void TraceMemory::ReadChunk(uint64_t number, const Visit& visit) {
  Chunk& chunk = memory_->chunks[number];
  const uint64_t owner = Load(chunk.owner);
  const uint64_t session = Load(memory_->control.session);
  if (session == 0 || trace_ring::SessionOf(owner) != session ||
      trace_ring::RoleNumberOf(owner) >= trace_ring::kRoleCount ||
      trace_ring::SlotOf(owner) >= trace_ring::kMostSlots)
    return;
  uint64_t& at = read_words_[number];
  if (std::exchange(owners_[number], owner) != owner) at = 0;
  // Loaded first: behind it no record is claimed any more.
  const uint64_t closed = Load(chunk.closed_words);
  while (at < Chunk::kWords) {
    const uint64_t first = Load(chunk.words[at]);
    const size_t words = trace_ring::WordsOf(trace_ring::TypeOf(first));
    if (words == 0 || at + words > Chunk::kWords) break;
    std::array<uint64_t, 8> record{first};
    for (size_t i = 1; i < words; ++i) record[i] = Load(chunk.words[at + i]);
    visit(trace_ring::SlotOf(owner), std::span(record).first(words));
    at += words;
  }
  if (closed == 0 || at != closed) return;
  at = 0;
  owners_[number] = 0;
  Store(chunk.owner, 0);
}

uint64_t TraceMemory::LostBy(uint32_t slot, trace_ring::Role role) const {
  const auto index = static_cast<size_t>(role);
  if (lost_before_.empty() || slot >= trace_ring::kMostSlots) return 0;
  return Load(memory_->lost[slot][index]) - lost_before_[slot * trace_ring::kRoleCount + index];
}

// By the words behind the gap, and the gap itself: up to the end of a closed chunk, or to the last
// word that is there.
uint64_t TraceMemory::HiddenOf(uint32_t slot, trace_ring::Role role) const {
  const uint64_t session = Load(memory_->control.session);
  const uint64_t owner = trace_ring::OwnerWord(session, slot, role);
  uint64_t hidden = 0;
  for (uint64_t i = 0; session != 0 && i < chunks_; ++i) {
    const Chunk& chunk = memory_->chunks[i];
    if (Load(chunk.owner) != owner) continue;
    const uint64_t at = owners_[i] == owner ? read_words_[i] : 0;
    const uint64_t closed = std::min<uint64_t>(Load(chunk.closed_words), Chunk::kWords);
    uint64_t end = closed;
    if (closed == 0) {
      end = Chunk::kWords;
      while (end > at && Load(chunk.words[end - 1]) == 0) --end;
    }
    if (end > at) hidden += (end - at + trace_ring::kFewestWords - 1) / trace_ring::kFewestWords;
  }
  return hidden;
}

std::string AnswerText(std::optional<trace_ring::Answer> answer) {
  if (!answer) return "it began no operation, so it took no request";
  switch (*answer) {
    case trace_ring::Answer::kTaken:
      return "";
    case trace_ring::Answer::kUnknownLevel:
      return "it refused the request: its plugin does not know this level";
    case trace_ring::Answer::kWrongTimes:
      return "it refused the request: its times are over, or too long";
    case trace_ring::Answer::kWrongRing:
      return "it refused the request: the size of the ring is not one that its plugin takes";
  }
  return "it gave an answer that is not known";
}

}  // namespace nccl_exporter::collector
