// SPDX-License-Identifier: Apache-2.0
// The commit that a stamped build was made of. For any thread.
#pragma once

namespace nccl_exporter::exporter {

// Commit of the build, which `bazel build --stamp --embed_label=COMMIT` sets. Empty without
// --stamp, as in tests: so neither results of tests nor other files depend on the commit.
extern const char* const kCommit;

}  // namespace nccl_exporter::exporter
