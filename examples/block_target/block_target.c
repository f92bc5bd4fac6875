// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Target of a block device: serves a file or a disk to kofi_blk, the kernel's initiator. Plain libfabric, FI_EP_MSG;
 * docs/wire/block.md says what travels.
 *
 *   block_target ADDRESS PORT FILE
 *   weft run block_target 10.0.0.1 4710 disk.img        with Weft's provider tcp
 *
 * One thread: a command that is executed has ended before the next event is looked at. So when a newer generation of
 * the initiator connects, closing the older one's endpoints is all that keeps its commands from being executed later.
 * The lock on the file does the same for a target that was killed.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the wire: docs/wire/block.md --- */

enum {
  MAGIC = 0x4b4c424b,
  VERSION = 1,
  QUEUES_MAX = 16,
  DEPTH_MAX = 256,
  INLINE_MAX = 8192,
  IO_MAX = 512 << 10
};
enum { OP_READ, OP_WRITE, OP_FLUSH, OP_DISCARD, OP_ZERO };
enum { FLAG_FUA = 1, FLAG_INLINE = 2 };
enum { WELCOME_DISCARD = 2, WELCOME_ZEROES = 4, WELCOME_INLINE_READS = 8 };

struct hello {
  uint32_t magic;
  uint16_t version, queue, queues, depth;
  uint32_t generation;
  uint8_t session[16];
  char export[20];
};
struct welcome {
  uint32_t magic;
  uint16_t version, flags;
  uint32_t block_bytes, zero;
  uint64_t bytes, volume, epoch;
};
struct refusal {
  uint32_t magic, err;
};
struct command {
  uint8_t op, flags;
  uint16_t tag, sequence, zero;
  uint32_t bytes, zero2;
  uint64_t offset, key;
};
struct answer {
  uint16_t tag, sequence, err, zero;
};

_Static_assert(sizeof(struct hello) == 52 && sizeof(struct welcome) == 40, "as the wire has it");
_Static_assert(sizeof(struct command) == 32 && sizeof(struct answer) == 8, "as the wire has it");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the structures above are written for little-endian machines"
#endif

enum { BLOCK = 512, FRAME = sizeof(struct command) + INLINE_MAX, HEADROOM = 4096, SLOT = HEADROOM + IO_MAX };

/* --- state --- */

struct connection;

/* What a completion names: a receive, or a command that is executed. */
struct context {
  struct connection* connection;
  bool receive;
};
struct receive {
  struct context context;
  unsigned char* frame; /* FRAME bytes */
};
enum step { STEP_FREE, STEP_FETCH, STEP_BRING, STEP_BRING_INLINE, STEP_ANSWER };
struct slot {
  struct context context;
  enum step step;
  struct command command;
  struct answer answer;
  unsigned char* data; /* IO_MAX bytes, room for the answer before them */
  struct slot* next;   /* free, or waiting for room to send */
};
struct connection {
  struct connection* next;
  struct fid_ep* ep;
  struct fid_mr* mr;
  void* desc;
  unsigned queue, depth;
  bool dead; /* its endpoint is closed; completions may still name it */
  struct receive* receives;
  struct slot* slots;
  struct slot *free, *waiting;
  unsigned char* memory;
  size_t memory_bytes;
};

static struct fid_fabric* fabric;
static struct fid_domain* domain;
static struct fid_eq* eq;
static struct fid_cq* cq;
static struct fid_pep* pep;
static struct fi_info* info;
static struct connection* connections;
static uint8_t session[16]; /* of the initiator that owns the device */
static uint32_t generation; /* its newest; 0: nobody owns it */
static int file;
static uint64_t file_bytes;
static uint64_t volume, epoch;
static bool
    lost_writes; /* a flush failed: the kernel reports that once, so nothing may be flushed any more */

static void die(const char* what, long status) {
  fprintf(stderr, "block_target: %s: %s\n", what, fi_strerror((int)(status < 0 ? -status : status)));
  exit(1);
}
static void check(const char* what, long status) {
  if (status < 0) die(what, status);
}

/* --- the file --- */

static uint64_t hash(const void* bytes, size_t count) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < count; ++i) h = (h ^ ((const unsigned char*)bytes)[i]) * 0x100000001b3u;
  return h;
}

static void open_file(const char* path) {
  struct stat status;
  char boot[64] = "";
  file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) die(path, errno);
  /* Another target of the file may still be dying: what it executes ends before it lets go of the lock. */
  if (flock(file, LOCK_EX) != 0) die("flock", errno);
  if (fstat(file, &status) != 0) die(path, errno);
  file_bytes = (uint64_t)status.st_size;
  if (S_ISBLK(status.st_mode) && ioctl(file, BLKGETSIZE64, &file_bytes) != 0) die("BLKGETSIZE64", errno);
  file_bytes -= file_bytes % BLOCK;
  if (file_bytes == 0) die("the file is empty", EINVAL);
  const uint64_t identity[2] = {S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev, status.st_ino};
  volume = hash(identity, sizeof(identity));
  /* Writes that were not flushed are in the page cache: they live as long as this boot of the kernel. */
  FILE* id = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (!id || !fgets(boot, sizeof(boot), id)) die("boot_id", EIO);
  fclose(id);
  epoch = hash(boot, strlen(boot));
}

static int transfer(bool write, unsigned char* data, size_t bytes, uint64_t offset) {
  while (bytes > 0) {
    const ssize_t done =
        write ? pwrite(file, data, bytes, (off_t)offset) : pread(file, data, bytes, (off_t)offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return EIO;
    data += done;
    bytes -= (size_t)done;
    offset += (uint64_t)done;
  }
  return 0;
}

static int flush(void) {
  if (lost_writes) return EIO;
  if (fdatasync(file) == 0) return 0;
  lost_writes = true;
  return EIO;
}

static int punch(const struct command* command) {
  const off_t at = (off_t)command->offset;
  if (command->bytes == 0) return 0;
  if (command->op == OP_ZERO &&
      fallocate(file, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, at, command->bytes) == 0)
    return 0;
  /* A hole reads as zeros. */
  return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, command->bytes) == 0 ? 0 : errno;
}

/* Everything but a read. The data of a write are there. */
static int execute(const struct command* command, unsigned char* data) {
  int err = 0;
  if (lost_writes) return EIO;
  switch (command->op) {
    case OP_WRITE:
      err = transfer(true, data, command->bytes, command->offset);
      break;
    case OP_FLUSH:
      return flush();
    case OP_DISCARD:
    case OP_ZERO:
      err = punch(command);
      break;
    default:
      return EOPNOTSUPP;
  }
  return err == 0 && (command->flags & FLAG_FUA) != 0 ? flush() : err;
}

/* --- connections --- */

/* The endpoint goes at once; the memory when no completion can name it any more: sweep(). */
static void cut(struct connection* connection) {
  if (connection->dead) return;
  connection->dead = true;
  fi_close(&connection->ep->fid);
}

static void cut_all(void) {
  for (struct connection* each = connections; each; each = each->next) cut(each);
}

/* The completion queue was empty after the endpoints of the dead had been closed. */
static void sweep(void) {
  for (struct connection** at = &connections; *at;) {
    struct connection* each = *at;
    if (!each->dead) {
      at = &each->next;
      continue;
    }
    *at = each->next;
    if (each->mr) fi_close(&each->mr->fid);
    munmap(each->memory, each->memory_bytes);
    free(each->receives);
    free(each->slots);
    free(each);
  }
}

static bool alive(void) {
  for (struct connection* each = connections; each; each = each->next)
    if (!each->dead) return true;
  return false;
}

static long post_receive(struct connection* connection, struct receive* receive) {
  return fi_recv(connection->ep, receive->frame, FRAME, connection->desc, FI_ADDR_UNSPEC, &receive->context);
}

static bool make_room(struct connection* connection) {
  /* An answered command keeps its slot until its send is reported: the next one may come before. */
  const size_t depth = connection->depth, slots = 2 * depth;
  connection->receives = calloc(depth, sizeof(*connection->receives));
  connection->slots = calloc(slots, sizeof(*connection->slots));
  /* Pages come when they are used. */
  connection->memory_bytes = slots * SLOT + depth * FRAME;
  connection->memory = mmap(NULL, connection->memory_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!connection->receives || !connection->slots || connection->memory == MAP_FAILED) return false;
  for (size_t i = 0; i < depth; ++i) {
    struct receive* receive = &connection->receives[i];
    *receive = (struct receive){{connection, true}, connection->memory + slots * SLOT + i * FRAME};
  }
  for (size_t i = 0; i < slots; ++i) {
    struct slot* slot = &connection->slots[i];
    slot->context.connection = connection;
    slot->data = connection->memory + i * SLOT + HEADROOM;
    slot->next = connection->free;
    connection->free = slot;
  }
  return true;
}

static bool open_connection(struct connection* connection, struct fi_info* request) {
  if (!make_room(connection)) return false;
  if ((info->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    static uint64_t key = 1;
    if (fi_mr_reg(domain, connection->memory, connection->memory_bytes,
                  FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, key++, 0, &connection->mr, NULL) != 0)
      return false;
    connection->desc = fi_mr_desc(connection->mr);
  }
  if (fi_endpoint(domain, request, &connection->ep, connection) != 0) return false;
  bool well = fi_ep_bind(connection->ep, &eq->fid, 0) == 0 &&
              fi_ep_bind(connection->ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0 &&
              fi_enable(connection->ep) == 0;
  for (unsigned i = 0; well && i < connection->depth; ++i)
    well = post_receive(connection, &connection->receives[i]) == 0;
  if (!well) fi_close(&connection->ep->fid);
  return well;
}

/* Who may connect: 0 or an errno. A newer generation ends all of the older one first. */
static int admit(const struct hello* hello) {
  if (hello->magic != MAGIC || hello->version != VERSION) return EPROTO;
  if (hello->queues == 0 || hello->queues > QUEUES_MAX || hello->queue >= hello->queues ||
      hello->depth == 0 || hello->depth > DEPTH_MAX || hello->generation == 0)
    return EINVAL;
  if (generation != 0 && memcmp(session, hello->session, sizeof(session)) != 0) {
    if (alive()) return EBUSY;
    generation = 0;
  }
  if (hello->generation < generation) return ESTALE;
  if (hello->generation > generation) {
    cut_all();
    memcpy(session, hello->session, sizeof(session));
    generation = hello->generation;
  }
  for (struct connection* each = connections; each; each = each->next)
    if (!each->dead && each->queue == hello->queue) return EEXIST;
  return 0;
}

static void on_request(struct fi_info* request, const void* data, size_t bytes) {
  const struct welcome welcome = {.magic = MAGIC,
                                  .version = VERSION,
                                  .flags = WELCOME_DISCARD | WELCOME_ZEROES | WELCOME_INLINE_READS,
                                  .block_bytes = BLOCK,
                                  .bytes = file_bytes,
                                  .volume = volume,
                                  .epoch = epoch};
  struct refusal refusal = {MAGIC, EPROTO};
  struct connection* connection = NULL;
  struct hello hello;
  if (bytes == sizeof(hello)) {
    memcpy(&hello, data, sizeof(hello));
    refusal.err = (uint32_t)admit(&hello);
    if (refusal.err == 0) connection = calloc(1, sizeof(*connection));
  }
  if (connection) {
    connection->queue = hello.queue;
    connection->depth = hello.depth;
    connection->next = connections;
    connections = connection;
    if (open_connection(connection, request)) {
      if (fi_accept(connection->ep, &welcome, sizeof(welcome)) != 0) cut(connection);
      fi_freeinfo(request);
      return;
    }
    connection->dead = true;
    refusal.err = ENOMEM;
  }
  fi_reject(pep, request->handle, &refusal, sizeof(refusal));
  fi_freeinfo(request);
}

/* --- commands --- */

/* What a slot's step asks of the endpoint. Without room there it waits; another error ends the connection. */
static void send_step(struct slot* slot) {
  struct connection* connection = slot->context.connection;
  const struct command* command = &slot->command;
  long status = -FI_EOTHER;
  switch (slot->step) {
    case STEP_FETCH:
      status = fi_read(connection->ep, slot->data, command->bytes, connection->desc, FI_ADDR_UNSPEC, 0,
                       command->key, &slot->context);
      break;
    case STEP_BRING:
      status = fi_writedata(connection->ep, slot->data, command->bytes, connection->desc,
                            command->tag | (uint64_t)command->sequence << 16, FI_ADDR_UNSPEC, 0, command->key,
                            &slot->context);
      break;
    case STEP_BRING_INLINE:
    case STEP_ANSWER: {
      unsigned char* message = slot->data - sizeof(slot->answer);
      memcpy(message, &slot->answer, sizeof(slot->answer));
      status = fi_send(connection->ep, message,
                       sizeof(slot->answer) + (slot->step == STEP_ANSWER ? 0 : command->bytes),
                       connection->desc, FI_ADDR_UNSPEC, &slot->context);
      break;
    }
    default:
      break;
  }
  if (status == -FI_EAGAIN) {
    slot->next = connection->waiting;
    connection->waiting = slot;
  } else if (status != 0) {
    cut(connection);
  }
}

static void answer_by(struct slot* slot, enum step step, int err) {
  slot->answer = (struct answer){slot->command.tag, slot->command.sequence, (uint16_t)err, 0};
  slot->step = step;
  send_step(slot);
}

static void answer(struct slot* slot, int err) { answer_by(slot, STEP_ANSWER, err); }

static bool well_formed(const struct command* command, size_t bytes) {
  const bool pages = command->op == OP_READ || command->op == OP_WRITE;
  const size_t with_it = (command->flags & FLAG_INLINE) != 0 ? command->bytes : 0;
  const size_t payload = command->op == OP_WRITE ? with_it : 0;
  if (command->op > OP_ZERO || (command->flags & ~(FLAG_FUA | FLAG_INLINE)) != 0) return false;
  if (with_it != 0 && (!pages || with_it > INLINE_MAX)) return false;
  return bytes == sizeof(*command) + payload && !(pages && (command->bytes == 0 || command->bytes > IO_MAX));
}

static void on_command(struct connection* connection, struct receive* receive, size_t bytes) {
  struct slot* slot = connection->free;
  struct command command;
  if (bytes < sizeof(command) || !slot) {
    cut(connection);
    return;
  }
  memcpy(&command, receive->frame, sizeof(command));
  if (!well_formed(&command, bytes)) {
    cut(connection);
    return;
  }
  connection->free = slot->next;
  slot->command = command;
  const bool is_inline = (command.flags & FLAG_INLINE) != 0;
  const bool has_payload = is_inline && command.op == OP_WRITE;
  if (has_payload) memcpy(slot->data, receive->frame + sizeof(command), command.bytes);
  /* Before the answer: the initiator's next command finds the receive. */
  if (post_receive(connection, receive) != 0) {
    cut(connection);
    return;
  }
  if (command.bytes % BLOCK != 0 || command.offset % BLOCK != 0 || command.offset > file_bytes ||
      command.bytes > file_bytes - command.offset) {
    answer(slot, EINVAL);
  } else if (command.op == OP_READ) {
    const int err = transfer(false, slot->data, command.bytes, command.offset);
    if (err != 0) {
      answer(slot, err);
    } else {
      answer_by(slot, is_inline ? STEP_BRING_INLINE : STEP_BRING, 0);
    }
  } else if (command.op == OP_WRITE && !has_payload) {
    slot->step = STEP_FETCH;
    send_step(slot);
  } else {
    answer(slot, execute(&command, slot->data));
  }
}

static void on_sent(struct slot* slot) {
  struct connection* connection = slot->context.connection;
  if (slot->step == STEP_FETCH) {
    answer(slot, execute(&slot->command, slot->data));
    return;
  }
  slot->step = STEP_FREE;
  slot->next = connection->free;
  connection->free = slot;
}

static void retry_waiting(void) {
  for (struct connection* each = connections; each; each = each->next) {
    struct slot* waiting = each->waiting;
    each->waiting = NULL;
    while (waiting) {
      struct slot* next = waiting->next;
      if (!each->dead) send_step(waiting);
      waiting = next;
    }
  }
}

/* --- queues --- */

static void read_completions(void) {
  struct fi_cq_msg_entry entry;
  struct fi_cq_err_entry error;
  ssize_t got;
  while ((got = fi_cq_read(cq, &entry, 1)) != -FI_EAGAIN) {
    if (got == -FI_EAVAIL) {
      memset(&error, 0, sizeof(error));
      if (fi_cq_readerr(cq, &error, 0) != 1) continue;
      const struct context* context = error.op_context;
      if (context) cut(context->connection);
      continue;
    }
    check("fi_cq_read", got);
    struct context* context = entry.op_context;
    if (!context || context->connection->dead) continue;
    if (context->receive) on_command(context->connection, (struct receive*)context, entry.len);
    else on_sent((struct slot*)context);
  }
  sweep();
  retry_waiting();
}

/* An event may name an endpoint that was closed since. */
static void cut_endpoint(const struct fid* fid) {
  for (struct connection* each = connections; each; each = each->next)
    if (!each->dead && &each->ep->fid == fid) cut(each);
}

static void read_events(void) {
  struct {
    struct fi_eq_cm_entry entry;
    uint8_t data[256];
  } event;
  uint32_t type;
  ssize_t got;
  while ((got = fi_eq_read(eq, &type, &event, sizeof(event), 0)) != -FI_EAGAIN) {
    if (got == -FI_EAVAIL) {
      struct fi_eq_err_entry error;
      memset(&error, 0, sizeof(error));
      if (fi_eq_readerr(eq, &error, 0) > 0) cut_endpoint(error.fid);
      continue;
    }
    check("fi_eq_read", got);
    if (type == FI_CONNREQ) on_request(event.entry.info, event.data, (size_t)got - sizeof(event.entry));
    else if (type == FI_SHUTDOWN) cut_endpoint(event.entry.fid);
  }
}

static int wait_fd(struct fid* fid) {
  int fd = -1;
  check("FI_GETWAIT", fi_control(fid, FI_GETWAIT, &fd));
  return fd;
}

static void serve(void) {
  struct pollfd fds[2] = {{.fd = wait_fd(&eq->fid), .events = POLLIN},
                          {.fd = wait_fd(&cq->fid), .events = POLLIN}};
  struct fid* fids[2] = {&eq->fid, &cq->fid};
  while (true) {
    read_events();
    read_completions();
    bool waits = false;
    for (struct connection* each = connections; each; each = each->next) waits = waits || each->waiting;
    if (fi_trywait(fabric, fids, 2) == 0 && poll(fds, 2, waits ? 1 : 1000) < 0 && errno != EINTR)
      die("poll", errno);
  }
}

static void open_fabric(const char* address, const char* port) {
  struct fi_info* hints = fi_allocinfo();
  struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
  struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD, .size = 16384};
  if (!hints) die("fi_allocinfo", ENOMEM);
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG | FI_RMA;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->cq_data_size = 4;
  check("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), address, port, FI_SOURCE, hints, &info));
  fi_freeinfo(hints);
  check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
  check("fi_eq_open", fi_eq_open(fabric, &eq_attr, &eq, NULL));
  check("fi_domain", fi_domain(fabric, info, &domain, NULL));
  check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
  check("fi_passive_ep", fi_passive_ep(fabric, info, &pep, NULL));
  check("fi_pep_bind", fi_pep_bind(pep, &eq->fid, 0));
  check("fi_listen", fi_listen(pep));
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: block_target ADDRESS PORT FILE\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  open_file(argv[3]);
  open_fabric(argv[1], argv[2]);
  printf("serving %llu bytes\n", (unsigned long long)file_bytes);
  fflush(stdout);
  serve();
}
