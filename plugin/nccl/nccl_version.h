// SPDX-License-Identifier: Apache-2.0
// Version of the NCCL that calls: the library that a given address (its logger function or its
// activation mask) lies in.
#pragma once

namespace nccl_exporter::plugin {

// What ncclGetVersion of that library reports (22907 for 2.29.7); 0 where it cannot be found, as
// with NCCL linked statically into a framework that hides its symbols. Several libraries of that
// name may be loaded; only the caller's is asked.
int FindNcclVersion(const void* address_in_nccl);

}  // namespace nccl_exporter::plugin
