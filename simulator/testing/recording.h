// SPDX-License-Identifier: Apache-2.0
// Functions of the recording plugin that a test finds by dlsym.
#pragma once

#include <cstdint>

extern "C" {

struct RecordingSettings {
  uint32_t mask = 0;          // set by every init
  uint32_t refused_bits = 0;  // kinds of events that get no handle
  // Set after the call of every Send, and of every Receive (2.28 and later); 0: not.
  uint32_t mask_after_send = 0;
  uint32_t mask_after_receive = 0;
  int result = 0;  // of all callbacks but init
};
void RecordingConfigure(const RecordingSettings* settings);

// A program that is started by itself sets RECORDING_MASK, RECORDING_REFUSED_BITS,
// RECORDING_RESULT, and RECORDING_FILE: each process writes the callbacks into that file, with a
// point, the id of its first communicator and its rank there behind its name (API v4 and later).

// All callbacks since the last time, a line each; the text stays until the next call.
//   init v6 id=… name=… nodes=… ranks=… rank=… pid=… version=…
//   U +Coll #5 context=1 parent=#3 … at=1234        start; U: on the thread of init, T: on another
//   U r23 GroupApi #1 args=0                        record
//   U -Coll #5                                      stop; "-NULL" for a null handle
//   finalize context=1
const char* RecordingTake();
}
