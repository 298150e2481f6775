// SPDX-License-Identifier: Apache-2.0
// Events that a release of NCCL reports to a profiler, as far as counts depend on them.
#pragma once

namespace nccl_exporter {

struct Announcements {
  int api_version;            // of the profiler interface that the release prefers
  bool calls;                 // API calls have events of their own
  bool communicator;          // name and number of ranks are reported at init
  bool broadcast_operations;  // Broadcast is announced as an operation, not as a call only
};

// `nccl_version` as ncclGetVersion reports it: 22809 for 2.28.9. `broadcasts_are_ordinary`: by
// NCCL_ALLGATHERV_ENABLE=0.
constexpr Announcements AnnouncementsOf(int nccl_version, bool broadcasts_are_ordinary = false) {
  const int release = nccl_version / 100;
  const int api_version = release < 224   ? 1
                          : release < 226 ? 2
                          : release < 227 ? 3
                          : release < 228 ? 4
                          : release < 229 ? 5
                          : release < 231 ? 6
                                          : 7;
  return {.api_version = api_version,
          .calls = release >= 228,
          .communicator = release >= 227,
          .broadcast_operations = release < 229 || broadcasts_are_ordinary};
}

}  // namespace nccl_exporter
