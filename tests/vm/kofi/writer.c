// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Writes to a file or disk, reads back, compares; several threads, each with a part of its own. Every 512 bytes say
 * where they belong and which write they are of, so that a write that is lost, repeated later or misplaced is seen.
 *
 *   writer PATH MIB SECONDS SEED      prints what was done; exit 1 and a line at the first difference
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, SECTOR = 512, UNIT = 4096, UNITS_MAX = 160 };

struct part {
  pthread_t thread;
  const char* path;
  uint64_t first, units; /* of UNIT bytes */
  uint64_t random;
  uint32_t* version; /* of each unit: that of the write it has */
  unsigned char* buf;
  time_t until;
  unsigned long writes, reads, flushes;
};

static uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void fail(const char* what, const struct part* part, uint64_t unit) {
  fprintf(stderr, "writer: %s, unit %llu: %s\n", what, (unsigned long long)(part->first + unit),
          strerror(errno));
  exit(1);
}

static void stamp(unsigned char* at, uint64_t unit, uint32_t version) {
  for (int sector = 0; sector < UNIT / SECTOR; ++sector, at += SECTOR) {
    uint64_t* words = (uint64_t*)at;
    for (int i = 0; i < SECTOR / 8; ++i)
      words[i] = (unit << 36) ^ ((uint64_t)version << 8) ^ (uint64_t)(sector * 64 + i);
  }
}

static void compare(struct part* part, int file, uint64_t unit, uint64_t count) {
  static _Thread_local unsigned char wanted[UNIT];
  if (pread(file, part->buf, count * UNIT, (off_t)((part->first + unit) * UNIT)) != (ssize_t)(count * UNIT))
    fail("read", part, unit);
  for (uint64_t i = 0; i < count; ++i) {
    if (part->version[unit + i] == 0) continue;
    stamp(wanted, part->first + unit + i, part->version[unit + i]);
    if (memcmp(wanted, part->buf + i * UNIT, UNIT) != 0) {
      errno = EILSEQ;
      fprintf(stderr, "writer: version %u wanted, word %016llx there\n", part->version[unit + i],
              (unsigned long long)*(uint64_t*)(part->buf + i * UNIT));
      fail("wrong bytes", part, unit + i);
    }
  }
  ++part->reads;
}

static void* work(void* argument) {
  struct part* part = argument;
  const int file = open(part->path, O_RDWR | O_DIRECT);
  uint32_t version = 0;
  if (file < 0) fail("open", part, 0);
  while (time(NULL) < part->until) {
    const uint64_t r = next_random(&part->random);
    uint64_t count = (r >> 8) % 8 == 0 ? 1 + (r >> 16) % UNITS_MAX : 1 + (r >> 16) % 2;
    const uint64_t unit = (r >> 32) % part->units;
    if (count > part->units - unit) count = part->units - unit;
    if (r % 16 < 10) {
      ++version;
      for (uint64_t i = 0; i < count; ++i) {
        stamp(part->buf + i * UNIT, part->first + unit + i, version);
        part->version[unit + i] = version;
      }
      if (pwrite(file, part->buf, count * UNIT, (off_t)((part->first + unit) * UNIT)) !=
          (ssize_t)(count * UNIT))
        fail("write", part, unit);
      ++part->writes;
    } else if (r % 16 < 15) {
      compare(part, file, unit, count);
    } else {
      if (fdatasync(file) != 0) fail("fdatasync", part, unit);
      ++part->flushes;
    }
  }
  for (uint64_t unit = 0; unit < part->units; unit += UNITS_MAX)
    compare(part, file, unit, part->units - unit < UNITS_MAX ? part->units - unit : UNITS_MAX);
  close(file);
  return NULL;
}

int main(int argc, char** argv) {
  struct part parts[THREADS];
  unsigned long writes = 0, reads = 0, flushes = 0;
  if (argc != 5) return 2;
  const uint64_t units = strtoull(argv[2], NULL, 10) * (1024 * 1024 / UNIT);
  int file = open(argv[1], O_RDWR | O_CREAT, 0600);
  if (file < 0 || (lseek(file, 0, SEEK_END) == 0 && ftruncate(file, (off_t)(units * UNIT)) != 0)) return 1;
  close(file);
  for (int i = 0; i < THREADS; ++i) {
    struct part* part = &parts[i];
    *part = (struct part){.path = argv[1], .first = units / THREADS * (uint64_t)i, .units = units / THREADS};
    part->random = strtoull(argv[4], NULL, 10) * 4 + (uint64_t)i + 1;
    part->until = time(NULL) + atoi(argv[3]);
    part->version = calloc(part->units, sizeof(*part->version));
    if (!part->version || posix_memalign((void**)&part->buf, UNIT, (size_t)UNITS_MAX * UNIT) != 0) return 1;
    for (int skip = 0; skip < 20; ++skip) next_random(&part->random);
    if (pthread_create(&part->thread, NULL, work, part) != 0) return 1;
  }
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(parts[i].thread, NULL);
    writes += parts[i].writes;
    reads += parts[i].reads;
    flushes += parts[i].flushes;
  }
  printf("%lu writes, %lu reads compared, %lu flushes\n", writes, reads, flushes);
  return 0;
}
