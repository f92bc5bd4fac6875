// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Prints the first provider of that name. */
#include <rdma/fabric.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** words) {
  struct fi_info* hints = fi_allocinfo();
  struct fi_info* info = NULL;
  if (hints == NULL || count < 2) return 2;
  hints->fabric_attr->prov_name = strdup(words[1]);
  int status = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);
  if (status == 0) {
    printf("%s\n", info->fabric_attr->prov_name);
    fi_freeinfo(info);
  }
  fi_freeinfo(hints);
  return status != 0;
}
