// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Has the name of one of our providers and a lower version: ours stays.
#define PLAIN_NAME "shm"
#define PLAIN_VERSION FI_VERSION(0, 1)
#define PLAIN_FI_VERSION FI_VERSION(1, 17)
#include "plain.h"
