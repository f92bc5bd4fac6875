// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A layer over other providers, as its name says.
#define PLAIN_NAME "ofi_cake"
#define PLAIN_VERSION FI_VERSION(1, 0)
#define PLAIN_FI_VERSION FI_VERSION(1, 17)
#include "plain.h"
