// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A program of the generation of its headers, linked to the multiplexer or directly. Its domain attributes end before a page without access. It asks for
 * what fi_version says, and gets the latest version that has its structures.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WANTED(what)                                    \
  do {                                                  \
    if (!(what)) {                                      \
      printf("FAILED: line %d: %s\n", __LINE__, #what); \
      return 1;                                         \
    }                                                   \
  } while (0)

int main(void) {
  const int second = FI_MAJOR_VERSION > 1;
  const uint32_t newest = second ? (FI_MINOR_VERSION >= 5 ? FI_VERSION(2, 6) : FI_VERSION(2, 4))
                                 : (FI_MINOR_VERSION >= 20 ? FI_VERSION(1, 22) : FI_VERSION(1, 19));
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* edge = (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct fi_info *hints = fi_allocinfo(), *found = NULL, *copy;
  struct fi_domain_attr* domain =
      (struct fi_domain_attr*)(void*)(edge + page - sizeof(struct fi_domain_attr));
  struct fi_domain_attr* whole;
  struct fid_fabric* fabric = NULL;
  uint64_t counter = 0;
  WANTED(edge != (char*)MAP_FAILED && mprotect(edge + page, page, PROT_NONE) == 0);
  WANTED(hints != NULL && fi_version() == FI_VERSION(2, 6));
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG;
  whole = hints->domain_attr;
  hints->domain_attr = domain;
  WANTED(fi_getinfo(fi_version(), NULL, NULL, 0, hints, &found) == 0);
  WANTED(found->fabric_attr->api_version == newest);
  if (sizeof *domain >= 224) {
    memcpy(&counter, (char*)found->domain_attr + 208, sizeof counter);
    WANTED(counter == UINT64_MAX);
  }
  copy = fi_dupinfo(hints);
  WANTED(copy != NULL && copy->caps == FI_MSG);
  fi_freeinfo(copy);
  WANTED(fi_fabric2(found, &fabric, 1, NULL) == -FI_EINVAL);
  WANTED(fi_fabric2(found, &fabric, 0, NULL) == 0);
  WANTED(fi_close(&fabric->fid) == 0);
  fi_freeinfo(found);
  hints->domain_attr = whole;
  fi_freeinfo(hints);
  return 0;
}
