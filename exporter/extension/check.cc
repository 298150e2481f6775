// SPDX-License-Identifier: Apache-2.0
#include "exporter/extension/check.h"

#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMostTimeOfTake{1000};
constexpr int kMostTestMs = 60'000;
constexpr size_t kMostSaidBytes = 16'384;  // of a child: more than all claims, less than a pipe has
constexpr size_t kManyCreations = 550, kManyTakes = 100;
constexpr double kMostGrowthMib = 16;
constexpr size_t kMostLeakBytes = 655;  // of an answer, or a creation: 64 KiB of 100

PlainSample RankInfo(size_t process) {
  const std::string number = std::to_string(process);
  return {.labels = {{"comm", "0123456789abcdef"},
                     {"comm_name", "world"},
                     {"rank", number},
                     {"gpu", std::to_string(process % 8)},
                     {"uid", "1000"},
                     {"nccl_job", "4711"},
                     {"hostname", "gpu-node-7"},
                     {"pid", std::to_string(4000 + process)},
                     {"gpu_uuid", "GPU-" + number}},
          .value = 1};
}

// As the daemon answers, with this many processes of ten series each.
ExtensionSnapshot Answer(size_t processes) {
  ExtensionSnapshot snapshot{.families = {}, .processes = {}, .time_ns = 1'700'000'000'000'000'000};
  PlainFamily info{
      .name = "nccl_rank_info", .help = "The rank.", .type = MetricType::kGauge, .samples = {}};
  PlainFamily operations{
      .name = "nccl_collective_operations_total", .help = "Collectives.", .samples = {}};
  for (size_t process = 0; process < processes; ++process) {
    info.samples.push_back(RankInfo(process));
    for (const char* collective : {"AllReduce", "AllGather", "ReduceScatter"}) {
      for (const char* size : {"0", "4096", "1048576"}) {
        PlainSample& sample = operations.samples.emplace_back(info.samples.back());
        sample.labels.push_back({"collective", collective});
        sample.labels.push_back({"size", size});
        sample.value = static_cast<double>(process + 1);
      }
    }
  }
  snapshot.families = {std::move(info), std::move(operations)};
  for (const PlainSample& sample : snapshot.families[0].samples)
    snapshot.processes.push_back(&sample);
  return snapshot;
}

// A job can make its labels and counts so.
ExtensionSnapshot HostileAnswer() {
  ExtensionSnapshot snapshot = Answer(4);
  PlainFamily& info = snapshot.families[0];
  const std::string texts[] = {"", std::string(128, 'x'), "a,b\"c\\\n{}=#", "../../\u202e%s%n"};
  for (size_t i = 0; i < info.samples.size(); ++i) {
    for (Label& label : info.samples[i].labels) label.value = texts[i];
  }
  info.samples[3].labels.clear();
  auto& samples = snapshot.families[1].samples;
  samples[0].value = std::numeric_limits<double>::quiet_NaN();
  samples[1].value = std::numeric_limits<double>::infinity();
  samples[2].value = -1e308;
  snapshot.families.push_back(
      {.name = "", .help = "", .type = MetricType::kHistogram, .samples = {{}}});
  snapshot.time_ns = std::numeric_limits<int64_t>::min();
  return snapshot;
}

void Require(bool is_right, const std::string& fault) {
  if (!is_right) throw std::runtime_error(fault);
}

double ResidentMib() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// By malloc(): in its heaps and mapped.
size_t AllocatedBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

bool AreEqual(const ExtensionGifts& one, const ExtensionGifts& other) {
  const auto samples = [](const ExtensionGifts& gifts) {
    std::map<std::pair<std::string, Labels>, std::string> all;
    for (const PlainFamily& family : gifts.families) {
      for (const PlainSample& sample : family.samples)
        all[{family.name, sample.labels}] = fmt::format("{}", sample.value);
    }
    return all;
  };
  return one.labels == other.labels && one.appended == other.appended &&
         samples(one) == samples(other);
}

class Tests {
 public:
  explicit Tests(const MakeExtension& make) : make_(make) {}

  void Loads() { make_(); }
  void IsCreated() { Created(); }
  std::string Claims() {
    const ExtensionSnapshot answer = Answer(8);
    ExtensionRound round(answer);
    Require(Created()->Claim(answer, round), "partition() fails");
    return round.Claims();
  }
  void Golden() { Take(*Created(), Answer(8)); }
  void Empty() {
    const ExtensionGifts gifts = Take(*Created(), ExtensionSnapshot());
    Require(gifts.labels.empty(), "it gives labels to processes that are not there");
  }
  void TwentyThousandSeries() { Take(*Created(), Answer(2000)); }
  void Hostile() { Take(*Created(), HostileAnswer()); }
  void Deterministic() {
    const auto extension = Created(), again = Created();
    Require(AreEqual(Take(*extension, Answer(8)), Take(*again, Answer(8))),
            "it gives something else for the same answer");
  }
  // All that it claims of processes is another's.
  void Conflicts() {
    const auto first = Created(), second = Created();
    const ExtensionSnapshot answer = Answer(8);
    ExtensionRound round(answer);
    std::string failed;
    first->Take(answer, round, failed);
    const ExtensionGifts gifts = second->Take(answer, round, failed);
    Require(failed.empty(), failed + "() fails where another extension has its claims");
    Require(gifts.labels.empty(), "it has labels that another one has claimed");
  }
  void Memory() {
    const auto extension = Created();
    const ExtensionSnapshot answer = Answer(64);
    RequireNoGrowth(kManyTakes, "answer", [&] { Take(*extension, answer); });
  }
  void Creations() {
    RequireNoGrowth(kManyCreations, "creation", [this] { Created(); });
  }

 private:
  // After `times` that warm it up. Twice as often and again, while it grows: a cache fills once, a
  // list that doubles its room does so each time.
  static void RequireNoGrowth(size_t times, const char* what, const std::function<void()>& act) {
    constexpr size_t kMostDoublings = 3;
    for (size_t i = 0; i < times; ++i) act();
    for (size_t doublings = 0;; ++doublings, times *= 2) {
      const double before_mib = ResidentMib();
      const size_t before = AllocatedBytes();
      for (size_t i = 0; i < times; ++i) act();
      const double growth_mib = ResidentMib() - before_mib;
      const size_t now = AllocatedBytes(), leak = (std::max(now, before) - before) / times;
      if (leak < kMostLeakBytes && growth_mib < kMostGrowthMib) return;
      Require(doublings < kMostDoublings && growth_mib < kMostGrowthMib,
              fmt::format("it grows by {:.1f} MiB in {} {}s: {} bytes of malloc() each", growth_mib,
                          times, what, leak));
    }
  }
  std::unique_ptr<ExtensionLibrary> Created() const {
    auto extension = make_();
    Require(extension->Create(), "create() refuses its configuration");
    return extension;
  }
  static ExtensionGifts Take(ExtensionLibrary& extension, const ExtensionSnapshot& answer,
                             int tries = 3) {
    ExtensionRound round(answer);
    std::string failed;
    const auto begin = Clock::now();
    ExtensionGifts gifts = extension.Take(answer, round, failed);
    const std::chrono::duration<double> took = Clock::now() - begin;
    Require(failed.empty(), failed + "() fails");
    // Others may have had the CPU.
    if (took >= kMostTimeOfTake && tries > 1) return Take(extension, answer, tries - 1);
    Require(took < kMostTimeOfTake, fmt::format("it takes {:.1f} s for an answer", took.count()));
    std::string refused;
    for (const auto& [what, why] : round.refusals())
      refused += fmt::format("{}{}: {}", refused.empty() ? "" : "; ", what, why);
    Require(refused.empty(), refused);
    return gifts;
  }

  const MakeExtension& make_;
};

// Returns what `act` returns, or throws its fault, of a child: either comes through a pipe. An end
// without one is a crash, or an exit().
std::string InChild(const std::function<std::string()>& act) {
  constexpr char kRight = '+', kFault = '-';
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error(std::strerror(errno));
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    try {
      said = kRight + act();
    } catch (const std::exception& fault) {
      said = kFault + std::string(fault.what());
    }
    _exit(::write(ends[1], said.data(), said.size()) < 0);
  }
  ::close(ends[1]);
  pollfd ended{.fd = ends[0], .events = POLLIN, .revents = 0};
  const bool is_over = child > 0 && ::poll(&ended, 1, kMostTestMs) > 0;
  char text[kMostSaidBytes];
  const ssize_t bytes = is_over ? ::read(ends[0], text, sizeof(text)) : 0;
  ::close(ends[0]);
  if (child < 0) throw std::runtime_error(std::strerror(errno));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  Require(is_over, fmt::format("it does not end within {} s", kMostTestMs / 1000));
  Require(bytes > 0, WIFSIGNALED(status)
                         ? fmt::format("it crashes: {}", ::strsignal(WTERMSIG(status)))
                         : "it ends the process");
  const std::string said(text + 1, static_cast<size_t>(bytes) - 1);
  Require(text[0] == kRight, said);
  return said;
}

}  // namespace

std::string ClaimsOf(const MakeExtension& make) {
  return InChild([&make] { return Tests(make).Claims(); });
}

std::vector<CheckResult> CheckExtension(const MakeExtension& make) {
  Tests tests(make);
  const std::pair<const char*, void (Tests::*)()> all[] = {
      {"is loaded: file, object, major, size, name", &Tests::Loads},
      {"is created", &Tests::IsCreated},
      {"an answer of 8 ranks", &Tests::Golden},
      {"an empty answer", &Tests::Empty},
      {"an answer of 20,000 series", &Tests::TwentyThousandSeries},
      {"a hostile answer", &Tests::Hostile},
      {"the same answer twice", &Tests::Deterministic},
      {"claims that another has", &Tests::Conflicts},
      {"memory of 200 answers", &Tests::Memory},
      {"1,100 creations", &Tests::Creations}};
  std::vector<CheckResult> results;
  for (const auto& [name, test] : all) {
    results.push_back({name, ""});
    try {
      InChild([&tests, test = test] { return (tests.*test)(), std::string(); });
    } catch (const std::runtime_error& fault) {
      results.back().fault = fault.what();
    }
    // All others would fail by the same.
    if (results.size() <= 2 && !results.back().fault.empty()) break;
  }
  return results;
}

}  // namespace nccl_exporter::exporter
