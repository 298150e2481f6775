// SPDX-License-Identifier: Apache-2.0
// Version of the NCCL that calls: the library that a given address (its logger function or its
// activation mask) lies in.
#pragma once

namespace nccl_exporter::plugin {

// Version of the library that contains an address, as ncclGetVersion reports it (22907 for 2.29.7);
// 0 where it cannot be found, as with NCCL linked statically into a framework that hides its
// symbols. Several libraries of that name may be loaded; only the caller's is asked.
int FindNcclVersion(const void* address_in_nccl);

// The number that the caller has for a log level of NVIDIA's (abi::kLogWarn, abi::kLogInfo). RCCL
// and NCCLX have inserted ERROR below WARN, so that NVIDIA's INFO is their WARN: a line of ours
// would be shown as a warning, and kept as the last error. Both export ncclAllToAllv, which
// NVIDIA's NCCL does not have. RCCL before 2.27.7 does too, and has NVIDIA's numbers: there INFO
// becomes ABORT, which is shown with NCCL_DEBUG=TRACE only.
int LogLevelOf(const void* logger, int level);

}  // namespace nccl_exporter::plugin
