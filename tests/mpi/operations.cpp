// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One-sided operations on elements: every operation on every type, by accumulate, get_accumulate and fetch_and_op, in numbers below
// and above what Open MPI hands to the provider's atomics (osc_rdma_network_max_amo, 32). Must not know how windows are otherwise used.
//
// Windows are made by create: in an allocated one Open MPI reaches ranks on the same host through memory of its own.
#include <array>

#include "check.hpp"

namespace weft::mpi {
namespace {

enum class Op { Sum, Prod, Max, Min, Land, Lor, Lxor, Band, Bor, Bxor, Replace, NoOp };
enum class Call { Accumulate, GetAccumulate, FetchAndOp };

constexpr std::array all_ops = {Op::Sum,  Op::Prod, Op::Max, Op::Min,  Op::Land,    Op::Lor,
                                Op::Lxor, Op::Band, Op::Bor, Op::Bxor, Op::Replace, Op::NoOp};

MPI_Op handle(Op op) {
  switch (op) {
    case Op::Sum:
      return MPI_SUM;
    case Op::Prod:
      return MPI_PROD;
    case Op::Max:
      return MPI_MAX;
    case Op::Min:
      return MPI_MIN;
    case Op::Land:
      return MPI_LAND;
    case Op::Lor:
      return MPI_LOR;
    case Op::Lxor:
      return MPI_LXOR;
    case Op::Band:
      return MPI_BAND;
    case Op::Bor:
      return MPI_BOR;
    case Op::Bxor:
      return MPI_BXOR;
    case Op::Replace:
      return MPI_REPLACE;
    case Op::NoOp:
      return MPI_NO_OP;
  }
  return MPI_OP_NULL;
}

bool is_for_integers(Op op) { return op >= Op::Land && op <= Op::Bxor; }

// What Open MPI's btl ofi knows, or what osc rdma does without asking it; the others abort the job in small numbers.
bool is_for_btl(Op op) { return op == Op::Sum || op == Op::Prod || op == Op::Replace || op == Op::NoOp; }

template <class T>
T applied(Op op, T a, T b) {
  const auto bits = [](T v) { return static_cast<uint64_t>(v); };
  switch (op) {
    case Op::Sum:
      return static_cast<T>(a + b);
    case Op::Prod:
      return static_cast<T>(a * b);
    case Op::Max:
      return a > b ? a : b;
    case Op::Min:
      return a < b ? a : b;
    case Op::Land:
      return static_cast<T>(a != 0 && b != 0);
    case Op::Lor:
      return static_cast<T>(a != 0 || b != 0);
    case Op::Lxor:
      return static_cast<T>((a != 0) != (b != 0));
    case Op::Band:
      return static_cast<T>(bits(a) & bits(b));
    case Op::Bor:
      return static_cast<T>(bits(a) | bits(b));
    case Op::Bxor:
      return static_cast<T>(bits(a) ^ bits(b));
    case Op::Replace:
      return b;
    case Op::NoOp:
      return a;
  }
  return a;
}

constexpr int room = 64;

template <class T>
T first_value(int i) {
  return static_cast<T>(i % 5);
}
template <class T>
T operand(int from, int i) {
  return static_cast<T>((from + i) % 3 + 1);
}

// One operation on n elements of the right neighbour. Nobody writes here again before all have come to the next one's barrier.
template <class T>
void once(MPI_Win window, std::vector<T>& space, MPI_Datatype type, Op op, Call call, int n) {
  std::vector<T> mine(room), old(room, T{77});
  for (int i = 0; i < room; ++i) {
    mine[static_cast<size_t>(i)] = operand<T>(rank(), i);
    space[static_cast<size_t>(i)] = first_value<T>(i);
  }
  MPI_Win_sync(window);
  MPI_Barrier(MPI_COMM_WORLD);
  switch (call) {
    case Call::Accumulate:
      good(MPI_Accumulate(mine.data(), n, type, right(), 0, n, type, handle(op), window));
      break;
    case Call::GetAccumulate:
      good(MPI_Get_accumulate(mine.data(), n, type, old.data(), n, type, right(), 0, n, type, handle(op),
                              window));
      break;
    case Call::FetchAndOp:
      for (size_t i = 0; i < static_cast<size_t>(n); ++i)
        good(
            MPI_Fetch_and_op(&mine[i], &old[i], type, right(), static_cast<MPI_Aint>(i), handle(op), window));
      break;
  }
  good(MPI_Win_flush_all(window));
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_sync(window);
  bool is_right = true, was_right = true;
  for (int i = 0; i < room; ++i) {
    const T before = first_value<T>(i);
    const T wanted = i < n ? applied(op, before, operand<T>(left(), i)) : before;
    is_right = is_right && space[static_cast<size_t>(i)] == wanted;
    was_right =
        was_right && old[static_cast<size_t>(i)] == (i < n && call != Call::Accumulate ? before : T{77});
  }
  expect(is_right, "elements after an operation on them");
  expect(was_right, "elements as they were before an operation");
}

// `every`: also the operations that Open MPI's btl ofi does not know, in small numbers.
template <class T>
void type(MPI_Datatype type, bool every) {
  std::vector<T> space(room);
  MPI_Win window;
  if (!good(
          MPI_Win_create(space.data(), room * sizeof(T), sizeof(T), MPI_INFO_NULL, MPI_COMM_WORLD, &window)))
    return;
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  good(MPI_Win_lock_all(0, window));
  for (const Op op : all_ops) {
    if (is_for_integers(op) && !std::is_integral_v<T>) continue;
    for (const Call call : {Call::Accumulate, Call::GetAccumulate, Call::FetchAndOp}) {
      if (op == Op::NoOp && call == Call::Accumulate)
        continue;  // MPI-3.1, 11.3.4: only where something is fetched
      // On both sides of the limit for one type; for the others few, as each is a round trip.
      const bool single = call == Call::FetchAndOp;
      for (const int n : single ? std::vector{3} : std::vector{sizeof(T) == 8 ? 32 : 2, 33}) {
        if ((single || n <= 32) && !every && !is_for_btl(op)) continue;
        once<T>(window, space, type, op, call, n);
      }
    }
  }
  good(MPI_Win_unlock_all(window));
  good(MPI_Win_free(&window));
}

void types(bool every) {
  type<int8_t>(MPI_INT8_T, every);
  type<int16_t>(MPI_INT16_T, every);
  type<int32_t>(MPI_INT32_T, every);
  type<int64_t>(MPI_INT64_T, every);
  type<uint32_t>(MPI_UINT32_T, every);
  type<uint64_t>(MPI_UINT64_T, every);
  type<float>(MPI_FLOAT, every);
  type<double>(MPI_DOUBLE, every);
}

// All ranks at the same element of rank 0; the result does not depend on the order.
void all_at_one(bool every) {
  uint64_t place = 0;
  MPI_Win window;
  if (!good(MPI_Win_create(&place, sizeof place, sizeof place, MPI_INFO_NULL, MPI_COMM_WORLD, &window)))
    return;
  for (const Op op : all_ops) {
    if (op == Op::Replace || (!every && !is_for_btl(op))) continue;
    place = 1;
    good(MPI_Win_lock_all(0, window));
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    constexpr int laps = 10;
    for (int lap = 0; lap < laps; ++lap) {
      const auto mine = operand<uint64_t>(rank(), lap);
      uint64_t old = 0;
      good(MPI_Fetch_and_op(&mine, &old, MPI_UINT64_T, 0, 0, handle(op), window));
      good(MPI_Win_flush(0, window));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
    uint64_t wanted = 1;
    for (int from = 0; from < size(); ++from)
      for (int lap = 0; lap < laps; ++lap) wanted = applied(op, wanted, operand<uint64_t>(from, lap));
    if (rank() == 0) expect(place == wanted, "an element after the operations of all ranks");
    good(MPI_Win_unlock_all(window));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  good(MPI_Win_free(&window));
}

}  // namespace

void operations_of_btl() {
  types(false);
  all_at_one(false);
}

void operations() {
  types(true);
  all_at_one(true);
}

}  // namespace weft::mpi
