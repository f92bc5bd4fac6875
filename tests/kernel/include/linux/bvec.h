// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For the headers of kernel/ in user space, which only name what the kernel declares here.
#pragma once
