// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// libfabric: fi_fabric hands out an object whose tables of functions (fabric(7), struct fi_ops and its like) are
// exchanged for ours, and so does every call by which an object makes another. Knows the public interface alone, so
// any libfabric.so.1 and any provider may be behind it.
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "trace/recorder.hpp"

namespace weft::trace {

namespace {

constexpr size_t tables_most = 8;  // fi_ops, and those after the fid

// An object whose tables are ours. Freed when it is closed.
struct Object {
  fid* at = nullptr;
  uint32_t id = 0;
  uint32_t entry_size = 0;  // of a completion queue; 0: not known
  uint64_t caps = 0;        // of an endpoint: which tables it has
  void* tables[tables_most] = {};
};

// Our copy of a provider's table lies behind this. It is as long as the original, whose functions that this build
// does not know stay in it.
struct Prefix {
  const void* original;
  Object* object;
};

constexpr size_t place_of_tables = sizeof(fid);  // the tables of an object are the pointers after its fid

template <class Table>
constexpr size_t place = 0;  // fi_ops_domain, fi_ops_ep, fi_ops_cq and the like are the first
template <>
constexpr size_t place<fi_ops_cm> = 1;
template <>
constexpr size_t place<fi_ops_mr> = 1;
template <>
constexpr size_t place<fi_ops_msg> = 2;
template <>
constexpr size_t place<fi_ops_rma> = 3;
template <>
constexpr size_t place<fi_ops_tagged> = 4;
template <>
constexpr size_t place<fi_ops_atomic> = 5;
static_assert(offsetof(fid_ep, ops) == place_of_tables && offsetof(fid_domain, ops) == place_of_tables);
static_assert(offsetof(fid_ep, cm) == place_of_tables + sizeof(void*) &&
              offsetof(fid_pep, cm) == offsetof(fid_ep, cm));
static_assert(offsetof(fid_domain, mr) == place_of_tables + sizeof(void*));
static_assert(offsetof(fid_ep, msg) == place_of_tables + 2 * sizeof(void*));
static_assert(offsetof(fid_ep, atomic) == place_of_tables + 5 * sizeof(void*));

// Where the object at `at` has its pointer to this table.
template <class Table>
Table*& table_of(void* at) noexcept {
  if constexpr (std::is_same_v<Table, fi_ops>) {
    return static_cast<fid*>(at)->ops;
  } else {
    return reinterpret_cast<Table**>(static_cast<std::byte*>(at) + place_of_tables)[place<Table>];
  }
}

// The place of a table in Object::tables.
template <class Table>
constexpr size_t index_of = std::is_same_v<Table, fi_ops> ? 0 : 1 + place<Table>;

template <class Table>
Prefix& prefix_of(Table* table) noexcept {
  return *(reinterpret_cast<Prefix*>(table) - 1);
}

int close_object(fid* object);

bool is_ours(const fid* object) noexcept { return object->ops && object->ops->close == &close_object; }

// The object whose call this thread is in. A provider may do one call of an object by another of the same (fi_cq_read
// by readfrom); that one is no call of the program. Calls of other objects, those of a layer to what is below it, are
// recorded.
thread_local const Object* inside __attribute__((tls_model("initial-exec"))) = nullptr;

class Inside {
 public:
  explicit Inside(const Object* object) noexcept : before_(inside) { inside = object; }
  ~Inside() { inside = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const Object* before_;
};

void adopt(fid* object, uint64_t caps, uint32_t entry_size, const char* name) noexcept;
void adopt_again(fid* object) noexcept;

// --- what a call tells about the operation that it posts ---

uint64_t bytes_of(const iovec* pieces, size_t count) noexcept {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += pieces[i].iov_len;
  return sum;
}

// fi_endpoint(3): FI_COMPLETION asks for a completion where the queue is bound with FI_SELECTIVE_COMPLETION.
uint64_t operation_flags(uint64_t flags) noexcept {
  return ((flags & FI_COMPLETION) ? flag_completion : 0) | ((flags & FI_MULTI_RECV) ? flag_multi : 0);
}

void post(Record& record, uint64_t bytes, const void* context, uint64_t flags = 0) noexcept {
  record.type = Type::started;
  record.bytes = bytes;
  record.context = reinterpret_cast<uintptr_t>(context);
  record.flags = operation_flags(flags);
}

constexpr auto nothing = [](Record&, auto...) {};

// --- the functions that stand in a table ---

// The type of Before is that of a lambda without captures: it has no state.
template <auto Member, uint16_t Number, class Before, class After, class Table, class Result, class Of,
          class... Arguments>
Result forward(Of* object, Arguments... arguments) {
  Table* table = table_of<Table>(const_cast<void*>(static_cast<const void*>(object)));
  const Prefix& prefix = prefix_of(table);
  const auto original = static_cast<const Table*>(prefix.original)->*Member;
  if (inside == prefix.object) return original(object, arguments...);
  Record record = begin_call(Number, prefix.object->id);
  Before{}(record, arguments...);
  Result result{};
  {
    const Inside here(prefix.object);
    result = original(object, arguments...);
  }
  if (record.type == Type::started && static_cast<int64_t>(result) == -FI_EAGAIN) {
    put_idle(Number, record.object, record.begin, now());
  } else {
    end_call(record, static_cast<int64_t>(result));
  }
  After{}(object, result, arguments...);
  return result;
}

constexpr auto no_after = [](auto*, auto, auto...) {};

template <auto Member, uint16_t Number, class Table, class Result, class Of, class... Arguments, class Before,
          class After>
void set(Table& table, Result (*Table::*)(Of*, Arguments...), Before, After) noexcept {
  table.*Member = &forward<Member, Number, Before, After, Table, Result, Of, Arguments...>;
}

// A provider's table may be shorter than ours, and may lack the function.
template <class Table, class Function>
bool has(const Table& table, Function Table::*member) noexcept {
  const auto* field = reinterpret_cast<const std::byte*>(&(table.*member));
  const auto end = static_cast<size_t>(field - reinterpret_cast<const std::byte*>(&table)) + sizeof(Function);
  return end <= table.size && table.*member != nullptr;
}

template <auto Member, uint16_t Number, class Table, class Before = decltype(nothing),
          class After = decltype(no_after)>
void hook(Table& table, Before before = {}, After after = {}) noexcept {
  if (has(table, Member)) set<Member, Number>(table, Member, before, after);
}

// After a call that may have given an endpoint other tables (rdma/fi_endpoint.h, struct fid_ep).
constexpr auto check_again = [](auto* object, auto, auto...) { adopt_again(reinterpret_cast<fid*>(object)); };

// --- completion queues: what is read is recorded one by one ---

template <class Entry>
const Entry* entry(const void* buffer, uint32_t size, ssize_t index) noexcept {
  return reinterpret_cast<const Entry*>(static_cast<const std::byte*>(buffer) +
                                        static_cast<size_t>(index) * size);
}

uint64_t completion_flags(uint64_t flags) noexcept {
  constexpr uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
  uint64_t result = 0;
  if (flags & FI_RECV) result |= flag_receive;
  if ((flags & (FI_SEND | FI_READ | FI_WRITE)) && !(flags & FI_RECV)) result |= flag_transmit;
  if ((flags & FI_ATOMIC) && !(flags & (FI_RECV | remote))) result |= flag_transmit;
  if ((flags & remote) && !(flags & FI_RECV)) result |= flag_remote;
  if (flags & FI_MULTI_RECV) result |= flag_multi;
  return result;
}

void put_completion(uint64_t time, uint16_t call, uint32_t queue, const void* context, uint64_t flags,
                    uint64_t bytes, int64_t status) noexcept {
  put({.begin = time,
       .end = time,
       .context = reinterpret_cast<uintptr_t>(context),
       .bytes = bytes,
       .flags = flags,
       .result = status,
       .object = queue,
       .queue_pair = 0,
       .type = Type::completion,
       .call = call,
       .fault = 0});
}

void put_completions(const Record& call, const Object& queue, const void* buffer, ssize_t count) noexcept {
  // Of a format that is not known only the first entry can be found.
  if (queue.entry_size == 0) count = std::min<ssize_t>(count, 1);
  for (ssize_t i = 0; i < count; ++i) {
    const void* context = entry<fi_cq_entry>(buffer, queue.entry_size, i)->op_context;
    uint64_t flags = 0;
    uint64_t bytes = 0;
    if (queue.entry_size >= sizeof(fi_cq_msg_entry)) {
      const auto* message = entry<fi_cq_msg_entry>(buffer, queue.entry_size, i);
      flags = completion_flags(message->flags);
      bytes = message->len;
    }
    put_completion(call.end, call.call, queue.id, context, flags, bytes, 0);
  }
}

template <auto Member, uint16_t Number, class... Arguments>
ssize_t read_queue(fid_cq* queue, void* buffer, size_t count, Arguments... arguments) {
  const Prefix& prefix = prefix_of(queue->ops);
  const auto original = static_cast<const fi_ops_cq*>(prefix.original)->*Member;
  if (inside == prefix.object) return original(queue, buffer, count, arguments...);
  Record record = begin_call(Number, prefix.object->id);
  ssize_t result = 0;
  {
    const Inside here(prefix.object);
    result = original(queue, buffer, count, arguments...);
  }
  if (result == -FI_EAGAIN) {
    put_idle(Number, record.object, record.begin, now());
    return result;
  }
  end_call(record, result);
  if (result > 0) put_completions(record, *prefix.object, buffer, result);
  return result;
}

ssize_t read_error(fid_cq* queue, fi_cq_err_entry* buffer, uint64_t flags) {
  const Prefix& prefix = prefix_of(queue->ops);
  constexpr uint16_t call = number("fi_cq_readerr");
  Record record = begin_call(call, prefix.object->id);
  const ssize_t result = static_cast<const fi_ops_cq*>(prefix.original)->readerr(queue, buffer, flags);
  end_call(record, result);
  if (result > 0) {
    put_completion(record.end, call, record.object, buffer->op_context, completion_flags(buffer->flags),
                   buffer->len, -buffer->err);
  }
  return result;
}

uint64_t read_counter(fid_cntr* counter) {
  const Prefix& prefix = prefix_of(counter->ops);
  const uint64_t begin = now();
  const uint64_t value = static_cast<const fi_ops_cntr*>(prefix.original)->read(counter);
  put_idle(number("fi_cntr_read"), prefix.object->id, begin, now());
  return value;
}

template <auto Member, uint16_t Number, class... Arguments>
ssize_t read_events(fid_eq* queue, Arguments... arguments) {
  const Prefix& prefix = prefix_of(queue->ops);
  Record record = begin_call(Number, prefix.object->id);
  const ssize_t result = (static_cast<const fi_ops_eq*>(prefix.original)->*Member)(queue, arguments...);
  if (result == -FI_EAGAIN) {
    put_idle(Number, record.object, record.begin, now());
  } else {
    end_call(record, result);
  }
  return result;
}

// --- every table ---

template <class Made>
void adopt_made(int result, Made** made, uint64_t caps = 0, const char* name = "") noexcept {
  if (result == 0 && made && *made) adopt(reinterpret_cast<fid*>(*made), caps, 0, name);
}

const char* provider_of(const fi_info* info) noexcept {
  return info && info->fabric_attr && info->fabric_attr->prov_name ? info->fabric_attr->prov_name : "";
}

void adopt_endpoint(int result, fid_ep** made, const fi_info* info) noexcept {
  if (result != 0) return;
  adopt(&(*made)->fid, info ? info->caps : 0, 0, provider_of(info));
  if (is_ours(&(*made)->fid)) {
    say("operations %u %d %d\n", prefix_of((*made)->fid.ops).object->id,
        info && info->tx_attr && (info->tx_attr->op_flags & FI_COMPLETION) ? 1 : 0,
        info && info->rx_attr && (info->rx_attr->op_flags & FI_COMPLETION) ? 1 : 0);
  }
}

void fill(fi_ops_fabric& t) noexcept {
  hook<&fi_ops_fabric::domain, number("fi_domain")>(
      t, nothing, [](fid_fabric*, int result, fi_info* info, fid_domain** made, void*) {
        adopt_made(result, made, 0, provider_of(info));
      });
  hook<&fi_ops_fabric::domain2, number("fi_domain")>(
      t, nothing, [](fid_fabric*, int result, fi_info* info, fid_domain** made, uint64_t, void*) {
        adopt_made(result, made, 0, provider_of(info));
      });
  hook<&fi_ops_fabric::passive_ep, number("fi_passive_ep")>(
      t, nothing, [](fid_fabric*, int result, fi_info* info, fid_pep** made, void*) {
        adopt_made(result, made, 0, provider_of(info));
      });
  hook<&fi_ops_fabric::eq_open, number("fi_eq_open")>(
      t, nothing,
      [](fid_fabric*, int result, fi_eq_attr*, fid_eq** made, void*) { adopt_made(result, made); });
  hook<&fi_ops_fabric::wait_open, number("fi_wait_open")>(
      t, nothing, [](fid_fabric*, int result, fi_wait_attr*, fid_wait** made) { adopt_made(result, made); });
  hook<&fi_ops_fabric::trywait, number("fi_trywait")>(t);
}

uint32_t size_of(fi_cq_format format) noexcept {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
      return sizeof(fi_cq_tagged_entry);
    default:
      return 0;
  }
}

void fill(fi_ops_domain& t) noexcept {
  hook<&fi_ops_domain::av_open, number("fi_av_open")>(
      t, nothing,
      [](fid_domain*, int result, fi_av_attr*, fid_av** made, void*) { adopt_made(result, made); });
  hook<&fi_ops_domain::cq_open, number("fi_cq_open")>(
      t, nothing, [](fid_domain*, int result, fi_cq_attr* attr, fid_cq** made, void*) {
        if (result == 0) adopt(&(*made)->fid, 0, attr ? size_of(attr->format) : 0, "");
      });
  hook<&fi_ops_domain::endpoint, number("fi_endpoint")>(
      t, nothing, [](fid_domain*, int result, fi_info* info, fid_ep** made, void*) {
        adopt_endpoint(result, made, info);
      });
  hook<&fi_ops_domain::endpoint2, number("fi_endpoint")>(
      t, nothing, [](fid_domain*, int result, fi_info* info, fid_ep** made, uint64_t, void*) {
        adopt_endpoint(result, made, info);
      });
  hook<&fi_ops_domain::scalable_ep, number("fi_scalable_ep")>(
      t, nothing, [](fid_domain*, int result, fi_info* info, fid_ep** made, void*) {
        adopt_endpoint(result, made, info);
      });
  hook<&fi_ops_domain::cntr_open, number("fi_cntr_open")>(
      t, nothing,
      [](fid_domain*, int result, fi_cntr_attr*, fid_cntr** made, void*) { adopt_made(result, made); });
  hook<&fi_ops_domain::poll_open, number("fi_poll_open")>(
      t, nothing, [](fid_domain*, int result, fi_poll_attr*, fid_poll** made) { adopt_made(result, made); });
  hook<&fi_ops_domain::stx_ctx, number("fi_stx_context")>(
      t, nothing,
      [](fid_domain*, int result, fi_tx_attr*, fid_stx** made, void*) { adopt_made(result, made); });
  hook<&fi_ops_domain::srx_ctx, number("fi_srx_context")>(
      t, nothing, [](fid_domain*, int result, fi_rx_attr* attr, fid_ep** made, void*) {
        adopt_made(result, made, attr ? attr->caps : 0);
      });
}

constexpr auto adopt_region = [](fid*, int result, auto... arguments) {
  // The region is the argument of type fid_mr**.
  fid_mr** made = nullptr;
  const auto pick = [&made]<class T>(T argument) {
    if constexpr (std::is_same_v<T, fid_mr**>) made = argument;
  };
  (pick(arguments), ...);
  adopt_made(result, made);
};

void fill(fi_ops_mr& t) noexcept {
  hook<&fi_ops_mr::reg, number("fi_mr_reg")>(
      t, [](Record& record, const void*, size_t length, auto...) { record.bytes = length; }, adopt_region);
  hook<&fi_ops_mr::regv, number("fi_mr_regv")>(
      t,
      [](Record& record, const iovec* pieces, size_t count, auto...) {
        record.bytes = bytes_of(pieces, count);
      },
      adopt_region);
  hook<&fi_ops_mr::regattr, number("fi_mr_regattr")>(t, nothing, adopt_region);
}

void fill(fi_ops_av& t) noexcept {
  hook<&fi_ops_av::insert, number("fi_av_insert")>(t);
  hook<&fi_ops_av::insertsvc, number("fi_av_insertsvc")>(t);
  hook<&fi_ops_av::insertsym, number("fi_av_insertsym")>(t);
  hook<&fi_ops_av::remove, number("fi_av_remove")>(t);
  hook<&fi_ops_av::lookup, number("fi_av_lookup")>(t);
}

void fill(fi_ops_ep& t) noexcept {
  hook<&fi_ops_ep::cancel, number("fi_cancel")>(
      t, [](Record& record, const void* context) { record.context = reinterpret_cast<uintptr_t>(context); });
  hook<&fi_ops_ep::getopt, number("fi_getopt")>(t);
  hook<&fi_ops_ep::setopt, number("fi_setopt")>(t, nothing, check_again);
  hook<&fi_ops_ep::tx_ctx, number("fi_tx_context")>(
      t, nothing, [](fid_ep* endpoint, int result, int, fi_tx_attr* attr, fid_ep** made, void*) {
        const uint64_t caps = prefix_of(endpoint->fid.ops).object->caps;
        adopt_made(result, made, attr && attr->caps ? attr->caps : caps);
      });
  hook<&fi_ops_ep::rx_ctx, number("fi_rx_context")>(
      t, nothing, [](fid_ep* endpoint, int result, int, fi_rx_attr* attr, fid_ep** made, void*) {
        const uint64_t caps = prefix_of(endpoint->fid.ops).object->caps;
        adopt_made(result, made, attr && attr->caps ? attr->caps : caps);
      });
}

void fill(fi_ops_cm& t) noexcept {
  hook<&fi_ops_cm::setname, number("fi_setname")>(t);
  hook<&fi_ops_cm::getname, number("fi_getname")>(t);
  hook<&fi_ops_cm::getpeer, number("fi_getpeer")>(t);
  hook<&fi_ops_cm::connect, number("fi_connect")>(t, nothing, check_again);
  hook<&fi_ops_cm::listen, number("fi_listen")>(t);
  hook<&fi_ops_cm::accept, number("fi_accept")>(t, nothing, check_again);
  hook<&fi_ops_cm::reject, number("fi_reject")>(t);
  hook<&fi_ops_cm::shutdown, number("fi_shutdown")>(t);
  hook<&fi_ops_cm::join, number("fi_join")>(t);
}

void fill(fi_ops_eq& t) noexcept {
  if (has(t, &fi_ops_eq::read))
    t.read = &read_events<&fi_ops_eq::read, number("fi_eq_read"), uint32_t*, void*, size_t, uint64_t>;
  if (has(t, &fi_ops_eq::sread))
    t.sread = &read_events<&fi_ops_eq::sread, number("fi_eq_sread"), uint32_t*, void*, size_t, int, uint64_t>;
  hook<&fi_ops_eq::readerr, number("fi_eq_readerr")>(t);
  hook<&fi_ops_eq::write, number("fi_eq_write")>(t);
}

void fill(fi_ops_cq& t) noexcept {
  if (has(t, &fi_ops_cq::read)) t.read = &read_queue<&fi_ops_cq::read, number("fi_cq_read")>;
  if (has(t, &fi_ops_cq::readfrom))
    t.readfrom = &read_queue<&fi_ops_cq::readfrom, number("fi_cq_readfrom"), fi_addr_t*>;
  if (has(t, &fi_ops_cq::sread))
    t.sread = &read_queue<&fi_ops_cq::sread, number("fi_cq_sread"), const void*, int>;
  if (has(t, &fi_ops_cq::sreadfrom))
    t.sreadfrom = &read_queue<&fi_ops_cq::sreadfrom, number("fi_cq_sreadfrom"), fi_addr_t*, const void*, int>;
  if (has(t, &fi_ops_cq::readerr)) t.readerr = &read_error;
  hook<&fi_ops_cq::signal, number("fi_cq_signal")>(t);
}

void fill(fi_ops_cntr& t) noexcept {
  if (has(t, &fi_ops_cntr::read)) t.read = &read_counter;
  hook<&fi_ops_cntr::readerr, number("fi_cntr_readerr")>(t);
  hook<&fi_ops_cntr::add, number("fi_cntr_add")>(t);
  hook<&fi_ops_cntr::set, number("fi_cntr_set")>(t);
  hook<&fi_ops_cntr::wait, number("fi_cntr_wait")>(t);
}

void fill(fi_ops_wait& t) noexcept { hook<&fi_ops_wait::wait, number("fi_wait")>(t); }
void fill(fi_ops_poll& t) noexcept { hook<&fi_ops_poll::poll, number("fi_poll")>(t); }

// Arguments in the order (buffer, length, descriptor, ..., context).
constexpr auto one_piece = [](Record& record, const void*, size_t length, auto... rest) {
  const void* context = nullptr;
  ((context = [](auto argument) -> const void* {
     if constexpr (std::is_pointer_v<decltype(argument)>) return argument;
     return nullptr;
   }(rest)),
   ...);  // the last one stays
  post(record, length, context);
};
constexpr auto pieces = [](Record& record, const iovec* list, void**, size_t count, auto... rest) {
  one_piece(record, nullptr, bytes_of(list, count), rest...);
};
constexpr auto message = [](Record& record, const auto* argument, uint64_t flags) {
  post(record, bytes_of(argument->msg_iov, argument->iov_count), argument->context, flags);
};
constexpr auto injected = [](Record& record, const void*, size_t length, auto...) { record.bytes = length; };

void fill(fi_ops_msg& t) noexcept {
  hook<&fi_ops_msg::recv, number("fi_recv")>(t, one_piece);
  hook<&fi_ops_msg::recvv, number("fi_recvv")>(t, pieces);
  hook<&fi_ops_msg::recvmsg, number("fi_recvmsg")>(t, message);
  hook<&fi_ops_msg::send, number("fi_send")>(t, one_piece);
  hook<&fi_ops_msg::sendv, number("fi_sendv")>(t, pieces);
  hook<&fi_ops_msg::sendmsg, number("fi_sendmsg")>(t, message);
  hook<&fi_ops_msg::inject, number("fi_inject")>(t, injected);
  hook<&fi_ops_msg::senddata, number("fi_senddata")>(t, one_piece);
  hook<&fi_ops_msg::injectdata, number("fi_injectdata")>(t, injected);
}

void fill(fi_ops_tagged& t) noexcept {
  hook<&fi_ops_tagged::recv, number("fi_trecv")>(t, one_piece);
  hook<&fi_ops_tagged::recvv, number("fi_trecvv")>(t, pieces);
  hook<&fi_ops_tagged::recvmsg, number("fi_trecvmsg")>(
      t, [](Record& record, const fi_msg_tagged* argument, uint64_t flags) {
        message(record, argument, flags);
        // fi_tagged(3): a peek or a discard of a claimed message posts no buffer, and completes all the same.
        if (flags & (FI_PEEK | FI_CLAIM)) record.bytes = 0;
      });
  hook<&fi_ops_tagged::send, number("fi_tsend")>(t, one_piece);
  hook<&fi_ops_tagged::sendv, number("fi_tsendv")>(t, pieces);
  hook<&fi_ops_tagged::sendmsg, number("fi_tsendmsg")>(t, message);
  hook<&fi_ops_tagged::inject, number("fi_tinject")>(t, injected);
  hook<&fi_ops_tagged::senddata, number("fi_tsenddata")>(t, one_piece);
  hook<&fi_ops_tagged::injectdata, number("fi_tinjectdata")>(t, injected);
}

void fill(fi_ops_rma& t) noexcept {
  hook<&fi_ops_rma::read, number("fi_read")>(t, one_piece);
  hook<&fi_ops_rma::readv, number("fi_readv")>(t, pieces);
  hook<&fi_ops_rma::readmsg, number("fi_readmsg")>(t, message);
  hook<&fi_ops_rma::write, number("fi_write")>(t, one_piece);
  hook<&fi_ops_rma::writev, number("fi_writev")>(t, pieces);
  hook<&fi_ops_rma::writemsg, number("fi_writemsg")>(t, message);
  hook<&fi_ops_rma::inject, number("fi_inject_write")>(t, injected);
  hook<&fi_ops_rma::writedata, number("fi_writedata")>(t, one_piece);
  hook<&fi_ops_rma::injectdata, number("fi_inject_writedata")>(t, injected);
}

// Of atomics the length stays away: it is a count of elements, whose size is the datatype's.
constexpr auto atomic = [](Record& record, const void*, auto... rest) {
  one_piece(record, nullptr, 0, rest...);
};
constexpr auto atomic_message = [](Record& record, const fi_msg_atomic* argument, auto... rest) {
  uint64_t flags = 0;
  ((flags = [](auto value) -> uint64_t {
     if constexpr (std::is_integral_v<decltype(value)>) return value;
     return 0;
   }(rest)),
   ...);  // the last one
  post(record, 0, argument->context, flags);
};

void fill(fi_ops_atomic& t) noexcept {
  hook<&fi_ops_atomic::write, number("fi_atomic")>(t, atomic);
  hook<&fi_ops_atomic::writev, number("fi_atomicv")>(t, atomic);
  hook<&fi_ops_atomic::writemsg, number("fi_atomicmsg")>(t, atomic_message);
  hook<&fi_ops_atomic::inject, number("fi_inject_atomic")>(t);
  hook<&fi_ops_atomic::readwrite, number("fi_fetch_atomic")>(t, atomic);
  hook<&fi_ops_atomic::readwritev, number("fi_fetch_atomicv")>(t, atomic);
  hook<&fi_ops_atomic::readwritemsg, number("fi_fetch_atomicmsg")>(t, atomic_message);
  hook<&fi_ops_atomic::compwrite, number("fi_compare_atomic")>(t, atomic);
  hook<&fi_ops_atomic::compwritev, number("fi_compare_atomicv")>(t, atomic);
  hook<&fi_ops_atomic::compwritemsg, number("fi_compare_atomicmsg")>(t, atomic_message);
}

// fi_bind(3): what belongs to what, for the reader who pairs.
constexpr auto note_binding = [](fid* object, int result, fid* other, uint64_t flags) {
  if (result == 0 && other && is_ours(object) && is_ours(other)) {
    say("bind %u %u %d %d %d\n", prefix_of(object->ops).object->id, prefix_of(other->ops).object->id,
        (flags & FI_TRANSMIT) ? 1 : 0, (flags & FI_RECV) ? 1 : 0, (flags & FI_SELECTIVE_COMPLETION) ? 1 : 0);
  }
  adopt_again(object);
};

constexpr auto after_control = [](fid* object, int result, int command, void* argument) {
  adopt_again(object);
  // An alias is another endpoint, which may have been given the tables that we made for the first.
  if (result == 0 && command == FI_ALIAS && argument && is_ours(object)) {
    adopt(*static_cast<struct fi_alias*>(argument)->fid, prefix_of(object->ops).object->caps, 0, "alias");
  }
};

void fill(fi_ops& t) noexcept {
  if (t.close) t.close = &close_object;
  hook<&fi_ops::bind, number("fi_bind")>(t, nothing, note_binding);
  hook<&fi_ops::control, number("fi_control")>(
      t,
      [](Record& record, int command, void*) {
        if (command == FI_ENABLE) record.call = number("fi_enable");
      },
      after_control);
}

// --- exchange ---

// Calls `visit` with a null pointer of each type of table that the object has. A provider may leave out those at the
// end of an endpoint that its capabilities do not ask for (rdma/fi_endpoint.h, struct fid_ep), so these are not even
// looked at.
template <class Visit>
void each_table(const fid* object, uint64_t caps, Visit visit) noexcept {
  visit(static_cast<fi_ops*>(nullptr));
  switch (object->fclass) {
    case FI_CLASS_FABRIC:
      return visit(static_cast<fi_ops_fabric*>(nullptr));
    case FI_CLASS_DOMAIN:
      visit(static_cast<fi_ops_domain*>(nullptr));
      return visit(static_cast<fi_ops_mr*>(nullptr));
    case FI_CLASS_AV:
      return visit(static_cast<fi_ops_av*>(nullptr));
    case FI_CLASS_EQ:
      return visit(static_cast<fi_ops_eq*>(nullptr));
    case FI_CLASS_CQ:
      return visit(static_cast<fi_ops_cq*>(nullptr));
    case FI_CLASS_CNTR:
      return visit(static_cast<fi_ops_cntr*>(nullptr));
    case FI_CLASS_WAIT:
      return visit(static_cast<fi_ops_wait*>(nullptr));
    case FI_CLASS_POLL:
      return visit(static_cast<fi_ops_poll*>(nullptr));
    case FI_CLASS_STX_CTX:
      return visit(static_cast<fi_ops_ep*>(nullptr));
    case FI_CLASS_PEP:
      visit(static_cast<fi_ops_ep*>(nullptr));
      return visit(static_cast<fi_ops_cm*>(nullptr));
    case FI_CLASS_EP:
    case FI_CLASS_SEP:
    case FI_CLASS_TX_CTX:
    case FI_CLASS_RX_CTX:
    case FI_CLASS_SRX_CTX:
      visit(static_cast<fi_ops_ep*>(nullptr));
      if (object->fclass == FI_CLASS_EP || object->fclass == FI_CLASS_SEP)
        visit(static_cast<fi_ops_cm*>(nullptr));
      if (caps & FI_MSG) visit(static_cast<fi_ops_msg*>(nullptr));
      if (caps & FI_RMA) visit(static_cast<fi_ops_rma*>(nullptr));
      if (caps & FI_TAGGED) visit(static_cast<fi_ops_tagged*>(nullptr));
      if (caps & FI_ATOMIC) visit(static_cast<fi_ops_atomic*>(nullptr));
      return;
    default:
      return;
  }
}

const char* kind_of(const fid* object) noexcept {
  switch (object->fclass) {
    case FI_CLASS_FABRIC:
      return "fabric";
    case FI_CLASS_DOMAIN:
      return "domain";
    case FI_CLASS_EP:
      return "endpoint";
    case FI_CLASS_SEP:
      return "scalable endpoint";
    case FI_CLASS_TX_CTX:
      return "transmit context";
    case FI_CLASS_RX_CTX:
      return "receive context";
    case FI_CLASS_SRX_CTX:
      return "shared receive context";
    case FI_CLASS_STX_CTX:
      return "shared transmit context";
    case FI_CLASS_PEP:
      return "passive endpoint";
    case FI_CLASS_AV:
      return "address vector";
    case FI_CLASS_EQ:
      return "event queue";
    case FI_CLASS_CQ:
      return "completion queue";
    case FI_CLASS_CNTR:
      return "counter";
    case FI_CLASS_WAIT:
      return "wait set";
    case FI_CLASS_POLL:
      return "poll set";
    default:
      return "object";
  }
}

// Puts a copy of the table that the object has now, with our functions, in its place.
template <class Table>
void exchange(Object& object) noexcept {
  Table*& slot = table_of<Table>(object.at);
  void*& mine = object.tables[index_of<Table>];
  if (!slot || slot == mine || slot->size < sizeof(size_t)) return;
  auto* memory =
      static_cast<std::byte*>(std::calloc(1, sizeof(Prefix) + std::max(slot->size, sizeof(Table))));
  if (!memory) return;
  new (memory) Prefix{.original = slot, .object = &object};
  auto* table = reinterpret_cast<Table*>(memory + sizeof(Prefix));
  std::memcpy(table, slot, slot->size);
  fill(*table);
  if (mine) std::free(&prefix_of(static_cast<Table*>(mine)));
  mine = table;
  slot = table;
}

// Gives an object back the tables of its provider where ours, those of `owner`, are in its slots.
void restore(fid* at, const Object& owner) noexcept {
  each_table(at, owner.caps, [&]<class Table>(Table*) {
    Table*& slot = table_of<Table>(at);
    if (slot && slot == owner.tables[index_of<Table>])
      slot = static_cast<Table*>(const_cast<void*>(prefix_of(slot).original));
  });
}

void exchange_all(Object& object) noexcept {
  each_table(object.at, object.caps, [&]<class Table>(Table*) { exchange<Table>(object); });
}

void adopt(fid* at, uint64_t caps, uint32_t entry_size, const char* name) noexcept {
  if (!at || !at->ops) return;
  if (is_ours(at)) {
    const Object* owner = prefix_of(at->ops).object;
    if (owner->at == at) return;  // opened again: the provider counts its users
    restore(at, *owner);
  }
  void* memory = std::calloc(1, sizeof(Object));
  if (!memory) return;
  auto* object = new (memory) Object{};
  object->at = at;
  object->id = new_object();
  object->entry_size = entry_size;
  object->caps = caps;
  // Regions are many, and their kind is seen from the calls.
  if (at->fclass != FI_CLASS_MR) say("object %u %s%s%s\n", object->id, kind_of(at), name[0] ? " " : "", name);
  exchange_all(*object);
  if (!is_ours(at)) std::free(object);
}

void adopt_again(fid* at) noexcept {
  if (!is_ours(at)) return;
  exchange_all(*prefix_of(at->ops).object);
}

int close_object(fid* at) {
  Object& object = *prefix_of(at->ops).object;
  Record record = begin_call(number("fi_close"), object.id);
  const fi_ops* original = static_cast<const fi_ops*>(prefix_of(at->ops).original);
  restore(at, object);
  const int result = original->close(at);
  end_call(record, result);
  if (result != 0) {
    exchange_all(object);
    return result;
  }
  // The object is gone or, where its provider counts users, another user's.
  for (void* table : object.tables) {
    if (table) std::free(static_cast<Prefix*>(table) - 1);
  }
  std::free(&object);
  return result;
}

// The symbols of libfabric.so.1 and of libweft.so.1, of all versions: what a version means is not our business.
int open_fabric(const char* version, const char* library, fi_fabric_attr* attr, fid_fabric** made,
                void* context) noexcept {
  using Function = int (*)(fi_fabric_attr*, fid_fabric**, void*);
  const auto next = reinterpret_cast<Function>(next_symbol("fi_fabric", version, library));
  if (!next) return -FI_ENOSYS;
  Record record = begin_call(number("fi_fabric"), 0);
  const int result = next(attr, made, context);
  end_call(record, result);
  if (result == 0) adopt(&(*made)->fid, 0, 0, attr && attr->prov_name ? attr->prov_name : "");
  return result;
}

// fi_fabric(3), by an fi_info.
int open_fabric_by_info(fi_info* info, fid_fabric** made, uint64_t flags, void* context) noexcept {
  using Function = int (*)(fi_info*, fid_fabric**, uint64_t, void*);
  const auto next = reinterpret_cast<Function>(next_symbol("fi_fabric2", "FABRIC_1.8", "libfabric.so.1"));
  if (!next) return -FI_ENOSYS;
  Record record = begin_call(number("fi_fabric"), 0);
  const int result = next(info, made, flags, context);
  end_call(record, result);
  const fi_fabric_attr* attr = info ? info->fabric_attr : nullptr;
  if (result == 0) adopt(&(*made)->fid, 0, 0, attr && attr->prov_name ? attr->prov_name : "");
  return result;
}

int get_info(const char* symbol_version, const char* library, uint32_t version, const char* node,
             const char* service, uint64_t flags, const fi_info* hints, fi_info** info) noexcept {
  using Function = int (*)(uint32_t, const char*, const char*, uint64_t, const fi_info*, fi_info**);
  const auto next = reinterpret_cast<Function>(next_symbol("fi_getinfo", symbol_version, library));
  if (!next) return -FI_ENOSYS;
  Record record = begin_call(number("fi_getinfo"), 0);
  const int result = next(version, node, service, flags, hints, info);
  end_call(record, result);
  return result;
}

}  // namespace

}  // namespace weft::trace

// One function for each version of a symbol; trace.map has the versions.
#define WEFT_TRACE_FABRIC(name, version, separator, library)                                          \
  extern "C" __attribute__((visibility("default"))) int name(fi_fabric_attr* attr, fid_fabric** made, \
                                                             void* context) {                         \
    return weft::trace::open_fabric(version, library, attr, made, context);                           \
  }                                                                                                   \
  __asm__(".symver " #name ", fi_fabric" separator version)
#define WEFT_TRACE_GETINFO(name, version, separator, library)                                        \
  extern "C" __attribute__((visibility("default"))) int name(uint32_t api, const char* node,         \
                                                             const char* service, uint64_t flags,    \
                                                             const fi_info* hints, fi_info** info) { \
    return weft::trace::get_info(version, library, api, node, service, flags, hints, info);          \
  }                                                                                                  \
  __asm__(".symver " #name ", fi_getinfo" separator version)

WEFT_TRACE_FABRIC(weft_trace_fabric_1_0, "FABRIC_1.0", "@", "libfabric.so.1");
WEFT_TRACE_FABRIC(weft_trace_fabric_1_1, "FABRIC_1.1", "@@", "libfabric.so.1");
WEFT_TRACE_FABRIC(weft_trace_fabric_weft, "WEFT_1.0", "@", "libweft.so.1");
extern "C" __attribute__((visibility("default"))) int fi_fabric2(fi_info* info, fid_fabric** made,
                                                                 uint64_t flags, void* context) {
  return weft::trace::open_fabric_by_info(info, made, flags, context);
}
WEFT_TRACE_GETINFO(weft_trace_getinfo_1_0, "FABRIC_1.0", "@", "libfabric.so.1");
WEFT_TRACE_GETINFO(weft_trace_getinfo_1_1, "FABRIC_1.1", "@", "libfabric.so.1");
WEFT_TRACE_GETINFO(weft_trace_getinfo_1_2, "FABRIC_1.2", "@", "libfabric.so.1");
WEFT_TRACE_GETINFO(weft_trace_getinfo_1_3, "FABRIC_1.3", "@", "libfabric.so.1");
WEFT_TRACE_GETINFO(weft_trace_getinfo_1_7, "FABRIC_1.7", "@", "libfabric.so.1");
WEFT_TRACE_GETINFO(weft_trace_getinfo_1_8, "FABRIC_1.8", "@", "libfabric.so.1");
WEFT_TRACE_GETINFO(weft_trace_getinfo_1_9, "FABRIC_1.9", "@@", "libfabric.so.1");
WEFT_TRACE_GETINFO(weft_trace_getinfo_weft, "WEFT_1.0", "@", "libweft.so.1");
