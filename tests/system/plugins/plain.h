// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider that refuses everything, and tells when it is cleaned up. A plugin includes this with its own PLAIN_ values.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>
#include <stdlib.h>
#include <unistd.h>

static int plain_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                         const struct fi_info* hints, struct fi_info** info) {
  (void)version, (void)node, (void)service, (void)flags, (void)hints, (void)info;
  return -FI_ENODATA;
}
static int plain_fabric(struct fi_fabric_attr* attr, struct fid_fabric** fabric, void* context) {
  (void)attr, (void)fabric, (void)context;
  return -FI_ENOSYS;
}
static void plain_cleanup(void) {
  static const char text[] = "cleanup of " PLAIN_NAME "\n";
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) abort();
}

__attribute__((visibility("default"))) struct fi_provider* fi_prov_ini(void);
struct fi_provider* fi_prov_ini(void) {
  static struct fi_provider provider = {.version = PLAIN_VERSION,
                                        .fi_version = PLAIN_FI_VERSION,
                                        .name = PLAIN_NAME,
                                        .getinfo = plain_getinfo,
                                        .fabric = plain_fabric,
                                        .cleanup = plain_cleanup};
  return &provider;
}
