// SPDX-License-Identifier: Apache-2.0
// Names of glibc after 2.17 to which Debian 12's libstdc++.a refers. They are hidden in the library
// that is linked with them. Its code never asks for random numbers.
#include <cstddef>
#include <cstdlib>

extern "C" {

char __libc_single_threaded = 0;
int getentropy(void*, size_t) { return -1; }
unsigned arc4random() { abort(); }

}  // extern "C"
