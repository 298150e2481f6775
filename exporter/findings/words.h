// SPDX-License-Identifier: Apache-2.0
// Names of jobs, ranks, operations and times in sentences for people. Pure functions, for any
// thread. Text of other processes comes out as valid UTF-8 of limited length, without control
// characters, which a terminal would execute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {

// At most 64 bytes, cut between characters; each control character becomes a question mark.
std::string Printable(std::string_view text);
// Printable() with at most 512 bytes: whole paths of usual length, since a file must be found by
// it.
std::string PrintablePath(std::string_view path);

// "job 4712", "job llama (namespace team-a)"; "namespace team-a" or "the job of user 1000" where
// the job has no name.
std::string JobText(const collector::ProcessSnapshot& process);
// The user's name for the communicator, or the first half of its id.
std::string CommunicatorText(uint64_t id, std::string_view name);
// "AllGather #325", "Send to rank 4".
std::string OperationText(const collector::InFlightOperation& operation);

// Names in a list; the others are counted.
inline constexpr size_t kMostListed = 8;
// "1, 2, 3 and 4 more": the first names of `count`. Others are not asked for.
std::string ListText(size_t count, const std::function<std::string(size_t)>& name_of,
                     size_t most = kMostListed);

// Whether all ranks have global ranks. If not, a text numbers all of them by the ranks of their
// communicator.
bool HaveGlobalRanks(const std::vector<RankOnNode>& ranks);
// "global rank 4, 6", or "rank 0, 2".
std::string RanksText(const std::vector<RankOnNode>& ranks, bool are_global);

// Ranks of a communicator that are not on this node.
struct MissingRanks {
  uint64_t count = 0;
  // At most kMostFoundRanks: the number of ranks comes from a file, and may be any.
  std::vector<uint64_t> first;
};
// `ranks` are those of one communicator that are here, at least one. None is missing where NCCL
// does not report the number of ranks.
MissingRanks MissingOf(const std::vector<RankOnNode>& ranks);
// Ranks that are not seen there may have no room: they are not missing.
inline constexpr std::string_view kWhereNoRoom = "where not all communicators have room";
// "rank 1, 3 and 4 more".
std::string MissingText(const MissingRanks& missing);

// A finding about this communicator and the job of `rank` in it, without sentences.
Finding FindingAbout(FindingKind kind, Severity severity, const collector::CommunicatorKey& key,
                     const RankOnNode& rank);

// With the oldest operation in flight, and without `behind`. `are_global`: as in RanksText().
FoundRank FoundRankOf(const RankOnNode& rank, Standing standing, bool are_global = true);
// Sets the operation, and since when it has been in flight.
void AddOperation(const RankOnNode& rank, const collector::InFlightOperation& operation,
                  FoundRank& found);
// "global rank 3 (GPU 3, pid 5829, node-1)", or "rank 3 of fsdp (...)" where the first is not
// known.
std::string RankText(const FoundRank& rank, std::string_view communicator);

// "4.2 ms", "45 s", "12 min", "3.5 h"; "-" for what is not finite.
std::string DurationText(double seconds);
// Time since then, as DurationText; "-" for 0, "0.0 us" for the future.
std::string AgeText(int64_t then_ns, int64_t now_ns);
// "23:41:06 UTC"; "unknown" for 0.
std::string ClockText(int64_t realtime_ns);
// "1.5 MiB", in powers of 1024 as NCCL's sizes are; "512 B" below.
std::string BytesText(uint64_t bytes);
std::string BytesText(double bytes);  // a sum may be of more than 64 bits
std::string Capital(std::string_view text);
// "1 rank", "7 ranks".
std::string CountText(uint64_t count, std::string_view singular);

}  // namespace nccl_exporter::exporter
