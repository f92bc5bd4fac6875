// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A plugin of before 1.3, when providers had another structure.
#define PLAIN_NAME "ancient"
#define PLAIN_VERSION FI_VERSION(1, 0)
#define PLAIN_FI_VERSION FI_VERSION(1, 2)
#include "plain.h"
