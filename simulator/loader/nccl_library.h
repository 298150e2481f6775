// SPDX-License-Identifier: Apache-2.0
// The stand-in for libnccl: what of NCCL's library a plugin can see. A library of its own, because
// plugins ask the library that holds the mask or the logger for its version, and the dynamic linker
// does not open a main program again.
#pragma once

#include <cstdint>

extern "C" {

int ncclGetVersion(int* version);

// NCCL's one event mask of the process; the address is handed to every init.
int* NcclSimEventMask();

// NCCL's logger; prints to stderr what the level of NcclSimConfigure lets through.
void NcclSimLog(int level, unsigned long flags, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 5, 6)));

// `level` as NCCL counts: 0 none, 1 version, 2 warn, 3 info, 5 trace.
void NcclSimConfigure(int version, int level, int rank);
}
