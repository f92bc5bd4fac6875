// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A plugin that serves programs up to API 1.10 only.
#define PLAIN_NAME "middle"
#define PLAIN_VERSION FI_VERSION(3, 2)
#define PLAIN_FI_VERSION FI_VERSION(1, 10)
#include "plain.h"
