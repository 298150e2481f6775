// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_place.h"

#include <charconv>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {

JobPlace PlaceOf(const Sample& sample) {
  return {.comm = sample.Label("comm"),
          .comm_name = sample.Label("comm_name"),
          .rank = sample.Label("rank"),
          .global_rank = sample.Label("global_rank"),
          .gpu = sample.Label("gpu"),
          .node = sample.Label("hostname"),
          .instance = sample.Label("instance"),
          .pid = sample.Label("pid"),
          .pod = sample.Label("pod"),
          .container = sample.Label("container")};
}

ProcessKey ProcessOf(const JobPlace& place) {
  return {place.instance, place.pod, place.container, place.pid, place.global_rank};
}

GpuKey GpuOf(const JobPlace& place) { return {ProcessOf(place), place.gpu}; }

std::tuple<uint64_t, std::string> Order(const std::string& text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return {number, text};
}

bool NamesProcess(const JobPlace& place) { return !place.rank.empty() || !place.pid.empty(); }

std::string RankName(const JobPlace& place) {
  if (!NamesProcess(place)) return "node " + Printable(place.node);
  if (!place.global_rank.empty()) return "global rank " + Printable(place.global_rank);
  return place.rank.empty() ? "process " + Printable(place.pid) : "rank " + Printable(place.rank);
}

std::string CommunicatorName(const std::string& id, const std::string& name) {
  constexpr size_t kEnough = 8;  // digits, to tell those of a job apart
  return Printable(name.empty() ? std::string_view(id).substr(0, kEnough) : name);
}

}  // namespace nccl_exporter::exporter
