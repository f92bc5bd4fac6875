// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A plugin whose provider has an empty name.
#define PLAIN_NAME ""
#define PLAIN_VERSION FI_VERSION(1, 0)
#define PLAIN_FI_VERSION FI_VERSION(1, 17)
#include "plain.h"
