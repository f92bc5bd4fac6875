// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table of fi_atomic(3): one function per datatype and operation, made by templates.
#include "core/atomic.hpp"

#include <rdma/fi_errno.h>

#include <array>
#include <complex>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/hash.hpp"

namespace weft::core {

namespace {

__extension__ typedef __int128 Signed128;
using Unsigned128 = Wide128;

// What the manual calls a datatype. `Wide` is an unsigned type as wide as T that integer arithmetic is done
// in: it wraps, and the narrow types do not become int on the way.
template <class T>
struct Integer {
  using Type = T;
  using Wide = std::conditional_t<sizeof(T) == 16, Unsigned128, uint64_t>;
  static constexpr bool bits = true, ordered = true;
};
template <class T>
struct Real {
  using Type = T;
  static constexpr bool bits = false, ordered = true;
};
template <class T>
struct Complex {
  using Type = std::complex<T>;
  static constexpr bool bits = false, ordered = false;
};

constexpr size_t datatypes = FI_UINT128 + 1;

template <size_t datatype>
constexpr auto datatype_of() {
  if constexpr (datatype == FI_INT8) return Integer<int8_t>{};
  if constexpr (datatype == FI_UINT8) return Integer<uint8_t>{};
  if constexpr (datatype == FI_INT16) return Integer<int16_t>{};
  if constexpr (datatype == FI_UINT16) return Integer<uint16_t>{};
  if constexpr (datatype == FI_INT32) return Integer<int32_t>{};
  if constexpr (datatype == FI_UINT32) return Integer<uint32_t>{};
  if constexpr (datatype == FI_INT64) return Integer<int64_t>{};
  if constexpr (datatype == FI_UINT64) return Integer<uint64_t>{};
  if constexpr (datatype == FI_FLOAT) return Real<float>{};
  if constexpr (datatype == FI_DOUBLE) return Real<double>{};
  if constexpr (datatype == FI_FLOAT_COMPLEX) return Complex<float>{};
  if constexpr (datatype == FI_DOUBLE_COMPLEX) return Complex<double>{};
  if constexpr (datatype == FI_LONG_DOUBLE) return Real<long double>{};
  if constexpr (datatype == FI_LONG_DOUBLE_COMPLEX) return Complex<long double>{};
  if constexpr (datatype == FI_INT128) return Integer<Signed128>{};
  if constexpr (datatype == FI_UINT128) return Integer<Unsigned128>{};
}

constexpr bool in(uint32_t op, std::initializer_list<uint32_t> ops) {
  for (uint32_t each : ops) {
    if (op == each) return true;
  }
  return false;
}

// fi_atomic(3), "Compare-Atomic Functions".
constexpr bool compares(uint32_t op) { return op >= FI_CSWAP && op <= FI_MSWAP; }
constexpr bool needs_order(uint32_t op) {
  return in(op, {FI_MIN, FI_MAX, FI_CSWAP_LE, FI_CSWAP_LT, FI_CSWAP_GE, FI_CSWAP_GT});
}
constexpr bool needs_bits(uint32_t op) { return in(op, {FI_BOR, FI_BAND, FI_BXOR, FI_MSWAP}); }

template <class D>
constexpr bool defined(uint32_t op) {
  return op < FI_ATOMIC_OP_LAST && (D::ordered || !needs_order(op)) && (D::bits || !needs_bits(op));
}

// Whether the target changes: the conditions of fi_atomic(3), "Atomic Operations", with `old` for addr[i].
template <class D, uint32_t op, class T = typename D::Type>
bool stores([[maybe_unused]] const T& old, [[maybe_unused]] const T& operand,
            [[maybe_unused]] const T& compare) noexcept {
  if constexpr (op == FI_MIN) return operand < old;
  else if constexpr (op == FI_MAX) return operand > old;
  else if constexpr (op == FI_CSWAP) return compare == old;
  else if constexpr (op == FI_CSWAP_NE) return compare != old;
  else if constexpr (op == FI_CSWAP_LE) return compare <= old;
  else if constexpr (op == FI_CSWAP_LT) return compare < old;
  else if constexpr (op == FI_CSWAP_GE) return compare >= old;
  else if constexpr (op == FI_CSWAP_GT) return compare > old;
  else return op != FI_ATOMIC_READ;
}

template <class T>
bool truth(const T& value) noexcept {
  return value != T{};
}

// What is stored when stores() holds.
template <class D, uint32_t op, class T = typename D::Type>
T updated([[maybe_unused]] const T& old, const T& operand, [[maybe_unused]] const T& compare) noexcept {
  if constexpr (op == FI_LOR) return static_cast<T>(truth(old) || truth(operand));
  else if constexpr (op == FI_LAND) return static_cast<T>(truth(old) && truth(operand));
  else if constexpr (op == FI_LXOR) return static_cast<T>(truth(old) != truth(operand));
  else if constexpr (!in(op, {FI_SUM, FI_PROD}) && !needs_bits(op)) return operand;
  else if constexpr (!D::bits) return op == FI_SUM ? old + operand : old * operand;
  else {
    using Wide = typename D::Wide;
    const Wide a = static_cast<Wide>(old), b = static_cast<Wide>(operand), c = static_cast<Wide>(compare);
    if constexpr (op == FI_SUM) return static_cast<T>(a + b);
    else if constexpr (op == FI_PROD) return static_cast<T>(a * b);
    else if constexpr (op == FI_BOR) return static_cast<T>(a | b);
    else if constexpr (op == FI_BAND) return static_cast<T>(a & b);
    else if constexpr (op == FI_BXOR) return static_cast<T>(a ^ b);
    else return static_cast<T>((b & c) | (a & ~c));
  }
}

template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Stores the bytes of a value that mean something. The padding of the x87 format stays as it is, so that no
// byte of our stack becomes readable to a peer.
template <class T>
void store(std::byte* to, const T& value) noexcept {
  constexpr bool padded = std::is_same_v<T, long double> && std::numeric_limits<long double>::digits == 64;
  std::memcpy(to, &value, padded ? 10 : sizeof value);
}
void store(std::byte* to, const std::complex<long double>& value) noexcept {
  store(to, value.real());
  store(to + sizeof(long double), value.imag());
}

// An integer of the size of an element that may stand for any type in memory. Meaningless above 8 bytes.
template <size_t size>
struct Word {
  using Type [[gnu::may_alias]] = uint8_t;
};
template <>
struct Word<2> {
  using Type [[gnu::may_alias]] = uint16_t;
};
template <>
struct Word<4> {
  using Type [[gnu::may_alias]] = uint32_t;
};
template <>
struct Word<8> {
  using Type [[gnu::may_alias]] = uint64_t;
};

// The buffers of one call, as bytes. A null result is not wanted; a null operand or compare is not looked at.
struct Buffers {
  std::byte* target;
  const std::byte* operand;
  const std::byte* compare;
  std::byte* result;
};

template <class D, uint32_t op>
struct Element {
  using T = typename D::Type;
  using Bits = typename Word<sizeof(T)>::Type;
  static constexpr size_t size = sizeof(T);
  T operand{}, compare{};

  Element(const Buffers& at, size_t i) noexcept {
    if constexpr (op != FI_ATOMIC_READ) operand = load<T>(at.operand + i * size);
    if constexpr (compares(op)) compare = load<T>(at.compare + i * size);
  }

  // One thread at a time. The old bytes are copied as they are, padding included.
  void apply_plainly(std::byte* target, std::byte* result) const noexcept {
    const T old = load<T>(target);
    if (result != nullptr) std::memcpy(result, target, size);
    if (stores<D, op>(old, operand, compare)) store(target, updated<D, op>(old, operand, compare));
  }

  // Any number of threads and processes. `target` is a multiple of `size`. The acquire and release halves
  // pair with those of whoever else updates the element through this function or through atomics of its own.
  void apply_atomically(std::byte* target, std::byte* result) const noexcept {
    const Bits old = exchange(reinterpret_cast<Bits*>(target));
    if (result != nullptr) std::memcpy(result, &old, size);
  }

 private:
  // The old bits.
  Bits exchange(Bits* word) const noexcept {
    const Bits operand_bits = bits_of(operand);
    if constexpr (op == FI_ATOMIC_READ) return __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if constexpr (op == FI_ATOMIC_WRITE) return __atomic_exchange_n(word, operand_bits, __ATOMIC_ACQ_REL);
    if constexpr (D::bits && op == FI_SUM) return __atomic_fetch_add(word, operand_bits, __ATOMIC_ACQ_REL);
    Bits old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    for (;;) {
      const T value = load<T>(reinterpret_cast<const std::byte*>(&old));
      if (!stores<D, op>(value, operand, compare)) return old;
      const Bits next = bits_of(updated<D, op>(value, operand, compare));
      if (__atomic_compare_exchange_n(word, &old, next, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return old;
    }
  }

  static Bits bits_of(const T& value) noexcept {
    Bits bits;
    std::memcpy(&bits, &value, size);
    return bits;
  }
};

template <class D, uint32_t op>
void apply(const Buffers& at, size_t count) noexcept {
  constexpr size_t size = sizeof(typename D::Type);
  const bool aligned = reinterpret_cast<uintptr_t>(at.target) % size == 0;
  for (size_t i = 0; i < count; ++i) {
    const Element<D, op> element(at, i);
    std::byte* target = at.target + i * size;
    std::byte* result = at.result == nullptr ? nullptr : at.result + i * size;
    if constexpr (size <= 8) {
      if (aligned) {
        element.apply_atomically(target, result);
        continue;
      }
    }
    element.apply_plainly(target, result);
  }
}

using Apply = void (*)(const Buffers&, size_t) noexcept;

struct Row {
  size_t size;
  std::array<Apply, FI_ATOMIC_OP_LAST> ops;  // null where the operation is undefined
};

template <class D, uint32_t op>
constexpr Apply function_of() {
  if constexpr (defined<D>(op)) return &apply<D, op>;
  else return nullptr;
}

template <size_t datatype, size_t... ops>
constexpr Row row_of(std::index_sequence<ops...>) {
  using D = decltype(datatype_of<datatype>());
  return Row{sizeof(typename D::Type), {function_of<D, ops>()...}};
}

template <size_t... types>
constexpr std::array<Row, datatypes> make_table(std::index_sequence<types...>) {
  return {row_of<types>(std::make_index_sequence<FI_ATOMIC_OP_LAST>{})...};
}

constexpr std::array<Row, datatypes> table = make_table(std::make_index_sequence<datatypes>{});

// fi_atomic(3): the lists at the end of "Base Atomic Functions" and the two sections after it.
constexpr bool in_family(uint32_t op, AtomicKind kind) noexcept {
  switch (kind) {
    case AtomicKind::Write:
      return op < FI_CSWAP && op != FI_ATOMIC_READ;
    case AtomicKind::Fetch:
      return op < FI_CSWAP;
    case AtomicKind::Compare:
      return compares(op);
  }
  return false;
}

}  // namespace

size_t datatype_size(uint32_t datatype) noexcept { return datatype < datatypes ? table[datatype].size : 0; }

bool atomic_supported(uint32_t datatype, uint32_t op, AtomicKind kind) noexcept {
  return datatype < datatypes && in_family(op, kind) && table[datatype].ops[op] != nullptr;
}

int atomic_apply(uint32_t datatype, uint32_t op, AtomicKind kind, void* target, const void* operand,
                 const void* compare, void* result, size_t count) noexcept {
  if (!atomic_supported(datatype, op, kind)) return -FI_EOPNOTSUPP;
  if (count == 0) return 0;
  if (target == nullptr || (operand == nullptr && op != FI_ATOMIC_READ)) return -FI_EINVAL;
  if (compare == nullptr && kind == AtomicKind::Compare) return -FI_EINVAL;
  const Buffers at{static_cast<std::byte*>(target), static_cast<const std::byte*>(operand),
                   static_cast<const std::byte*>(compare),
                   kind == AtomicKind::Write ? nullptr : static_cast<std::byte*>(result)};
  table[datatype].ops[op](at, count);
  return 0;
}

}  // namespace weft::core
