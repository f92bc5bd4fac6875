// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One-sided: windows of every kind, all synchronisations, all operations; every value is checked.
#include <algorithm>
#include <array>
#include <numeric>

#include "check.hpp"

namespace weft::mpi {
namespace {

constexpr int length = 50'000;  // elements of a rank's window: 400 kB, more than any eager message

// A window of int64_t that frees itself; all start at -1.
class Window {
 public:
  enum class Kind { Create, Allocate, Dynamic };

  explicit Window(Kind kind, int count = length) : kind_(kind), count_(count) {
    const MPI_Aint bytes = static_cast<MPI_Aint>(sizeof(int64_t)) * count;
    if (kind == Kind::Allocate) {
      ok_ = good(MPI_Win_allocate(bytes, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &base_, &window_));
    } else {
      own_.resize(static_cast<size_t>(count));
      base_ = own_.data();
      ok_ = kind == Kind::Create
                ? good(MPI_Win_create(base_, bytes, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &window_))
                : good(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window_)) &&
                      good(MPI_Win_attach(window_, base_, bytes));
    }
    if (!ok_) return;
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
    std::fill_n(base_, count, -1);
    // A dynamic window is addressed by the target's own pointers.
    MPI_Aint here = 0;
    if (kind == Kind::Dynamic) MPI_Get_address(base_, &here);
    places_.resize(static_cast<size_t>(size()));
    MPI_Allgather(&here, 1, MPI_AINT, places_.data(), 1, MPI_AINT, MPI_COMM_WORLD);
  }
  ~Window() {
    if (!ok_) return;
    MPI_Barrier(MPI_COMM_WORLD);
    if (kind_ == Kind::Dynamic) good(MPI_Win_detach(window_, base_));
    good(MPI_Win_free(&window_));
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  bool usable() const { return ok_; }
  operator MPI_Win() const { return window_; }
  int64_t& operator[](int i) { return base_[i]; }
  int count() const { return count_; }
  // Where element i of a rank lies.
  MPI_Aint at(int target, int i) const {
    if (kind_ != Kind::Dynamic) return i;
    return MPI_Aint_add(places_[static_cast<size_t>(target)], i * static_cast<MPI_Aint>(sizeof(int64_t)));
  }
  // The target's memory as the program itself sees it, under a passive synchronisation.
  void sync() { good(MPI_Win_sync(window_)); }

 private:
  Kind kind_;
  int count_;
  bool ok_ = false;
  MPI_Win window_ = MPI_WIN_NULL;
  int64_t* base_ = nullptr;
  std::vector<int64_t> own_;
  std::vector<MPI_Aint> places_;
};

int64_t value(int from, int i) { return static_cast<int64_t>(from) * 1'000'000 + i; }

std::vector<int64_t> values(int from, int count) {
  std::vector<int64_t> v(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) v[static_cast<size_t>(i)] = value(from, i);
  return v;
}

bool holds(Window& w, int first, int count, int from) {
  for (int i = 0; i < count; ++i)
    if (w[first + i] != value(from, i)) return false;
  return true;
}

int put(const Window& w, const std::vector<int64_t>& v, int target, int place) {
  const int n = static_cast<int>(v.size());
  return MPI_Put(v.data(), n, MPI_INT64_T, target, w.at(target, place), n, MPI_INT64_T, w);
}

int get(const Window& w, std::vector<int64_t>& v, int target, int place) {
  const int n = static_cast<int>(v.size());
  return MPI_Get(v.data(), n, MPI_INT64_T, target, w.at(target, place), n, MPI_INT64_T, w);
}

void fences(Window::Kind kind) {
  Window w(kind);
  if (!w.usable()) return;
  for (const int n : {1, 100, 5'000, length}) {
    const auto mine = values(rank(), n);
    std::vector<int64_t> back(static_cast<size_t>(n), 0);
    good(MPI_Win_fence(MPI_MODE_NOPRECEDE, w));
    good(put(w, mine, right(), 0));
    good(MPI_Win_fence(0, w));
    expect(holds(w, 0, n, left()), "put between fences");
    good(MPI_Win_fence(0, w));
    good(get(w, back, right(), 0));
    good(MPI_Win_fence(MPI_MODE_NOSUCCEED, w));
    expect(back == mine, "get between fences");
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Each rank exposes its window to the left neighbour and reaches that of the right one.
void start_and_post() {
  Window w(Window::Kind::Create);
  if (!w.usable()) return;
  MPI_Group world, to, from;
  good(MPI_Comm_group(MPI_COMM_WORLD, &world));
  const int there = right(), here = left();
  good(MPI_Group_incl(world, 1, &there, &to));
  good(MPI_Group_incl(world, 1, &here, &from));
  for (const int n : {1, 3'000, length}) {
    const auto mine = values(rank() + n, n);
    std::vector<int64_t> back(static_cast<size_t>(n));
    good(MPI_Win_post(from, 0, w));
    good(MPI_Win_start(to, 0, w));
    good(put(w, mine, right(), 0));
    good(MPI_Win_complete(w));
    good(MPI_Win_wait(w));
    expect(holds(w, 0, n, left() + n), "put between start and complete");
    good(MPI_Win_post(from, MPI_MODE_NOPUT, w));
    good(MPI_Win_start(to, 0, w));
    good(get(w, back, right(), 0));
    good(MPI_Win_complete(w));
    int done = 0;
    while (done == 0) good(MPI_Win_test(w, &done));
    expect(back == mine, "get between start and complete");
  }
  MPI_Group_free(&to);
  MPI_Group_free(&from);
  MPI_Group_free(&world);
}

void locks(Window::Kind kind) {
  Window w(kind);
  if (!w.usable()) return;
  for (const int n : {1, 2'000, length / 8}) {
    const auto mine = values(rank(), n);
    std::vector<int64_t> back(static_cast<size_t>(n));
    good(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, w));
    good(put(w, mine, right(), 0));
    good(MPI_Win_flush(right(), w));
    good(get(w, back, right(), 0));
    good(MPI_Win_flush_local(right(), w));
    expect(back == mine, "a get after a flushed put");
    good(MPI_Win_unlock(right(), w));
    MPI_Barrier(MPI_COMM_WORLD);
    good(MPI_Win_lock(MPI_LOCK_SHARED, rank(), 0, w));
    expect(holds(w, 0, n, left()), "put under a lock");
    good(MPI_Win_unlock(rank(), w));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  // All at once, each in a part of its own of every window.
  const int part = length / 8;
  good(MPI_Win_lock_all(0, w));
  const auto mine = values(rank(), part);
  for (int r = 0; r < size(); ++r) good(put(w, mine, r, (rank() % 8) * part));
  good(MPI_Win_flush_all(w));
  MPI_Barrier(MPI_COMM_WORLD);
  w.sync();
  for (int r = 0; r < std::min(size(), 8); ++r)
    expect(holds(w, r * part, part, r), "puts of all under lock_all");
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<int64_t> back(static_cast<size_t>(part));
  for (int r = 0; r < std::min(size(), 8); ++r) {
    good(get(w, back, right(), r * part));
    good(MPI_Win_flush_local_all(w));
    expect(back == values(r, part), "gets under lock_all");
  }
  good(MPI_Win_unlock_all(w));
}

// Windows that come and go while the last acknowledgements of their predecessors are still on the way.
void many_windows() {
  constexpr int part = 6'250;
  for (int lap = 0; lap < 30; ++lap) {
    Window w(Window::Kind::Allocate, part);
    if (!w.usable()) return;
    const auto mine = values(lap, part);
    good(MPI_Win_lock_all(0, w));
    good(put(w, mine, right(), 0));
    good(MPI_Win_flush_all(w));
    MPI_Barrier(MPI_COMM_WORLD);
    w.sync();
    expect(holds(w, 0, part, lap), "a put into a new window");
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<int64_t> back(static_cast<size_t>(part), -1);
    good(get(w, back, right(), 0));
    good(MPI_Win_flush_local_all(w));
    expect(back == mine, "a get from a new window");
    good(MPI_Win_unlock_all(w));
  }
}

void request_forms() {
  Window w(Window::Kind::Allocate);
  if (!w.usable()) return;
  constexpr int n = 4'000;
  const auto mine = values(rank(), n);
  std::vector<int64_t> back(n), old(n);
  good(MPI_Win_lock_all(0, w));
  MPI_Request request;
  good(MPI_Rput(mine.data(), n, MPI_INT64_T, right(), w.at(right(), 0), n, MPI_INT64_T, w, &request));
  good(MPI_Wait(&request, MPI_STATUS_IGNORE));
  good(MPI_Win_flush(right(), w));
  good(MPI_Rget(back.data(), n, MPI_INT64_T, right(), w.at(right(), 0), n, MPI_INT64_T, w, &request));
  good(MPI_Wait(&request, MPI_STATUS_IGNORE));
  expect(back == mine, "rput, then rget");
  good(MPI_Raccumulate(mine.data(), n, MPI_INT64_T, right(), w.at(right(), 0), n, MPI_INT64_T, MPI_SUM, w,
                       &request));
  good(MPI_Wait(&request, MPI_STATUS_IGNORE));
  good(MPI_Win_flush(right(), w));
  good(MPI_Rget_accumulate(mine.data(), n, MPI_INT64_T, old.data(), n, MPI_INT64_T, right(), w.at(right(), 0),
                           n, MPI_INT64_T, MPI_REPLACE, w, &request));
  good(MPI_Wait(&request, MPI_STATUS_IGNORE));
  bool doubled = true;
  for (int i = 0; i < n; ++i) doubled = doubled && old[static_cast<size_t>(i)] == 2 * value(rank(), i);
  expect(doubled, "raccumulate, then rget_accumulate");
  good(MPI_Win_unlock_all(w));
  MPI_Barrier(MPI_COMM_WORLD);
}

// All ranks add to the same elements of rank 0: none is lost.
void accumulates() {
  Window w(Window::Kind::Create);
  if (!w.usable()) return;
  for (const int n : {1, 900, 20'000}) {
    good(MPI_Win_fence(0, w));
    std::fill_n(&w[0], length, 0);
    good(MPI_Win_fence(0, w));
    constexpr int laps = 5;
    const auto mine = values(rank(), n);
    for (int lap = 0; lap < laps; ++lap)
      for (int r = 0; r < size(); ++r)
        good(MPI_Accumulate(mine.data(), n, MPI_INT64_T, r, w.at(r, 0), n, MPI_INT64_T, MPI_SUM, w));
    good(MPI_Win_fence(0, w));
    bool ok = true;
    for (int i = 0; i < n; ++i) {
      int64_t sum = 0;
      for (int r = 0; r < size(); ++r) sum += value(r, i);
      ok = ok && w[i] == laps * sum;
    }
    expect(ok, "sums of all by accumulate");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  good(MPI_Win_fence(0, w));
  std::fill_n(&w[0], length, 0);
  good(MPI_Win_fence(0, w));
  // More than osc_rdma_network_max_amo: for fewer Open MPI 4.1 asks its btl ofi for atomics that this does not know.
  constexpr int n = 64;
  const std::vector<int64_t> bits(n, int64_t{1} << rank()), highs(n, 100 + rank());
  good(MPI_Accumulate(bits.data(), n, MPI_INT64_T, 0, w.at(0, 0), n, MPI_INT64_T, MPI_BOR, w));
  good(MPI_Accumulate(highs.data(), n, MPI_INT64_T, 0, w.at(0, n), n, MPI_INT64_T, MPI_MAX, w));
  good(MPI_Win_fence(0, w));
  bool ok = true;
  for (int i = 0; i < n && rank() == 0; ++i)
    ok = ok && w[i] == (int64_t{1} << size()) - 1 && w[n + i] == 99 + size();
  expect(ok, "or and max by accumulate");
}

void accumulates_of_doubles() {
  std::vector<double> space(2'000, 1.0), mine(2'000, 0.25), old(2'000);
  MPI_Win w;
  if (!good(MPI_Win_create(space.data(), static_cast<MPI_Aint>(space.size() * sizeof(double)), sizeof(double),
                           MPI_INFO_NULL, MPI_COMM_WORLD, &w)))
    return;
  good(MPI_Win_fence(0, w));
  good(MPI_Accumulate(mine.data(), 2'000, MPI_DOUBLE, 0, 0, 2'000, MPI_DOUBLE, MPI_SUM, w));
  good(MPI_Win_fence(0, w));
  good(MPI_Get_accumulate(mine.data(), 2'000, MPI_DOUBLE, old.data(), 2'000, MPI_DOUBLE, 0, 0, 2'000,
                          MPI_DOUBLE, MPI_NO_OP, w));
  good(MPI_Win_fence(0, w));
  const double wanted = 1 + 0.25 * size();
  expect(std::all_of(old.begin(), old.end(), [wanted](double d) { return d == wanted; }), "sums of doubles");
  good(MPI_Win_free(&w));
}

// A counter at rank 0, drawn from by all: each number is drawn once.
void tickets(Window::Kind kind) {
  Window w(kind, 8);
  if (!w.usable()) return;
  good(MPI_Win_lock_all(0, w));
  if (rank() == 0) w[0] = 0;
  w.sync();
  MPI_Barrier(MPI_COMM_WORLD);
  constexpr int each = 200;
  std::vector<int64_t> drawn(each);
  const int64_t one = 1;
  for (int64_t& ticket : drawn) {
    good(MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, w.at(0, 0), MPI_SUM, w));
    good(MPI_Win_flush(0, w));
  }
  good(MPI_Win_unlock_all(w));
  expect(std::is_sorted(drawn.begin(), drawn.end()), "tickets of a rank rise");
  std::vector<int64_t> all(static_cast<size_t>(each * size()));
  good(MPI_Allgather(drawn.data(), each, MPI_INT64_T, all.data(), each, MPI_INT64_T, MPI_COMM_WORLD));
  std::sort(all.begin(), all.end());
  bool ok = true;
  for (size_t i = 0; i < all.size(); ++i) ok = ok && all[i] == static_cast<int64_t>(i);
  expect(ok, "each ticket once");
}

// A lock made of compare-and-swap guards a plain get, add, put. It lies at rank 0, which does not take part: Open MPI 4.1 crashes
// when a rank compares and swaps in its own window, over its own transports too.
void spin_lock() {
  Window w(Window::Kind::Create, 8);
  if (!w.usable()) return;
  good(MPI_Win_lock_all(0, w));
  w[0] = w[1] = 0;
  w.sync();
  MPI_Barrier(MPI_COMM_WORLD);
  constexpr int each = 25;
  const int64_t free_value = 0, taken = rank() + 1;
  for (int i = 0; i < each && rank() != 0; ++i) {
    int64_t before = -1;
    while (before != free_value) {
      good(MPI_Compare_and_swap(&taken, &free_value, &before, MPI_INT64_T, 0, w.at(0, 0), w));
      good(MPI_Win_flush(0, w));
    }
    int64_t counter = 0;
    good(MPI_Get(&counter, 1, MPI_INT64_T, 0, w.at(0, 1), 1, MPI_INT64_T, w));
    good(MPI_Win_flush(0, w));
    ++counter;
    good(MPI_Put(&counter, 1, MPI_INT64_T, 0, w.at(0, 1), 1, MPI_INT64_T, w));
    good(MPI_Win_flush(0, w));
    good(MPI_Fetch_and_op(&free_value, &before, MPI_INT64_T, 0, w.at(0, 0), MPI_REPLACE, w));
    good(MPI_Win_flush(0, w));
    expect(before == taken, "the lock was ours");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  w.sync();
  if (rank() == 0) expect(w[1] == each * (size() - 1), "nothing that the lock guarded is lost");
  good(MPI_Win_unlock_all(w));
}

// Holes at the target: every third element of it.
void derived_targets() {
  Window w(Window::Kind::Create);
  if (!w.usable()) return;
  constexpr int n = 5'000;
  MPI_Datatype third;
  good(MPI_Type_vector(n, 1, 3, MPI_INT64_T, &third));
  good(MPI_Type_commit(&third));
  const auto mine = values(rank(), n);
  std::vector<int64_t> back(n);
  good(MPI_Win_fence(0, w));
  good(MPI_Put(mine.data(), n, MPI_INT64_T, right(), 0, 1, third, w));
  good(MPI_Win_fence(0, w));
  bool ok = true;
  for (int i = 0; i < 3 * n; ++i) ok = ok && w[i] == (i % 3 == 0 ? value(left(), i / 3) : -1);
  expect(ok, "a put with holes at the target");
  good(MPI_Get(back.data(), n, MPI_INT64_T, right(), 0, 1, third, w));
  good(MPI_Win_fence(0, w));
  expect(back == mine, "a get with holes at the target");
  good(MPI_Type_free(&third));
}

// Several windows and two-sided traffic at once.
void beside_messages() {
  Window a(Window::Kind::Create, 4'000), b(Window::Kind::Allocate, 4'000);
  if (!a.usable() || !b.usable()) return;
  const auto mine = values(rank(), 4'000);
  for (int lap = 0; lap < 5; ++lap) {
    good(MPI_Win_fence(0, a));
    good(MPI_Win_fence(0, b));
    good(put(a, mine, right(), 0));
    good(put(b, mine, left(), 0));
    int got = -1;
    const int me = rank();
    good(MPI_Sendrecv(&me, 1, MPI_INT, right(), 8, &got, 1, MPI_INT, left(), 8, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    expect(got == left(), "a message between puts");
    good(MPI_Win_fence(0, a));
    good(MPI_Win_fence(0, b));
    expect(holds(a, 0, 4'000, left()) && holds(b, 0, 4'000, right()), "two windows at once");
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

}  // namespace

void windows() {
  fences(Window::Kind::Create);
  fences(Window::Kind::Allocate);
  start_and_post();
  locks(Window::Kind::Create);
  locks(Window::Kind::Allocate);
  many_windows();
  request_forms();
  accumulates();
  accumulates_of_doubles();
  tickets(Window::Kind::Allocate);
  tickets(Window::Kind::Create);
  spin_lock();
  derived_targets();
  beside_messages();
}

void windows_dynamic() {
  fences(Window::Kind::Dynamic);
  locks(Window::Kind::Dynamic);
}

}  // namespace weft::mpi
