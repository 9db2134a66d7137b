#pragma once

#include <atomic>

#include "src/core/machine.h"
#include "src/core/threads.h"

namespace hybrid_trainer::kernels::cpu {

/// Minimum number of elements per thread. With fewer, another thread costs more than it saves.
inline constexpr std::int64_t kMinElementsPerThread = 8192;

/// Returns the minimum number of rows per thread, for rows of `row_elements` elements.
inline std::int64_t min_rows_per_thread(std::int64_t row_elements) {
  return kMinElementsPerThread / std::max<std::int64_t>(row_elements, 1);
}

/// True in sanitized builds, which compile a body only once, because variants would be identical.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Run the body compiled for an instruction set. It is passed by value, to stay in registers.
template <class Body, class... Indices>
[[gnu::noinline, gnu::flatten, gnu::target("arch=x86-64-v4,prefer-vector-width=512")]] void
run_avx512(Body body, Indices... indices) {
  body(indices...);
}
template <class Body, class... Indices>
[[gnu::noinline, gnu::flatten, gnu::target("arch=x86-64-v3")]] void run_avx2(Body body,
                                                                             Indices... indices) {
  body(indices...);
}
template <class Body, class... Indices>
[[gnu::noinline, gnu::flatten]] void run_baseline(Body body, Indices... indices) {
  body(indices...);
}
template <class Body, class... Indices>
void run_on(InstructionSet set, const Body& body, Indices... indices) {
  if constexpr (!kSanitized) {
    if (set == InstructionSet::kAvx512) return run_avx512(body, indices...);
    if (set == InstructionSet::kAvx2) return run_avx2(body, indices...);
  }
  run_baseline(body, indices...);
}

/// Returns the number of shares of parallel_shares; depends only on n, `least` and threads().
inline std::int64_t share_count(std::int64_t n, std::int64_t least) {
  return std::clamp<std::int64_t>(n / std::max<std::int64_t>(least, 1), 1, threads());
}

/// Calls body(share, begin, end) for share_count(n, least) contiguous parts of [0, n), each on one
/// thread. The parts do not depend on timing, so sums in the order of shares are reproducible.
template <class Body>
void parallel_shares(std::int64_t n, std::int64_t least, const Body& body) {
  const InstructionSet set = instruction_set();
  const std::int64_t shares = share_count(n, least);
  if (shares == 1) return run_on(set, body, std::int64_t{0}, std::int64_t{0}, n);
  run_tasks(shares, [&](std::int64_t, std::int64_t share) {
    run_on(set, body, share, n * share / shares, n * (share + 1) / shares);
  });
}

/// Calls body(begin, end) for contiguous parts of [0, n), several per share. A thread takes the
/// parts of its own share first, then parts that no other thread has begun. The parts do not depend
/// on timing, and begin at multiples of `unit`.
template <class Body>
void parallel_parts(std::int64_t n, std::int64_t least, std::int64_t unit, const Body& body) {
  constexpr std::int64_t kPartsPerShare = 4, kMaxParts = 64;
  const InstructionSet set = instruction_set();
  const std::int64_t shares = std::min(share_count(n, least), kMaxParts);
  if (shares == 1) return run_on(set, body, std::int64_t{0}, n);
  const std::int64_t parts =
      std::min({kPartsPerShare * shares, n / std::max<std::int64_t>(least, 1), kMaxParts});
  const auto first_of = [&](std::int64_t part) {
    return part == parts ? n : n / unit * part / parts * unit;
  };
  std::atomic<std::uint64_t> taken = 0;  // one bit per part
  run_tasks(shares, [&](std::int64_t, std::int64_t share) {
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t part = (parts * share / shares + i) % parts;
      const std::uint64_t bit = std::uint64_t{1} << part;
      if ((taken.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) continue;
      run_on(set, body, first_of(part), first_of(part + 1));
    }
  });
}

/// Calls body(begin, end) for contiguous parts of n elements. Parts begin at whole vectors, so that
/// the bits do not depend on the number of threads.
template <class Body>
void parallel_for(std::int64_t n, const Body& body) {
  constexpr std::int64_t kVectorElements = 64;  // at least an unrolled vector of any type
  parallel_parts(n, kMinElementsPerThread, kVectorElements, body);
}

/// Calls body(begin, end) for contiguous parts of n rows of `row_elements` elements.
template <class Body>
void parallel_rows(std::int64_t n, std::int64_t row_elements, const Body& body) {
  parallel_parts(n, min_rows_per_thread(row_elements), 1, body);
}

/// Calls body(row) for each of n rows of `row_elements` elements, in contiguous parts.
template <class Body>
void for_each_row(std::int64_t n, std::int64_t row_elements, const Body& body) {
  parallel_rows(n, row_elements, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

/// Calls body(worker, item) for each item. Each of threads() workers takes the next item when it is
/// free. Results must not depend on the worker, which only identifies scratch space.
template <class Body>
void parallel_items(std::int64_t count, const Body& body) {
  const InstructionSet set = instruction_set();
  run_tasks(count,
            [&](std::int64_t worker, std::int64_t item) { run_on(set, body, worker, item); });
}

/// Allocates cache-line-aligned arrays from scratch memory; only counts bytes if `base` is null.
class ScratchArena {
 public:
  explicit ScratchArena(float* base) : base_(base) {}
  template <class T>
  T* take(std::int64_t elements) {
    T* const cut = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + taken_);
    taken_ += (elements * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 16;
    return cut;
  }
  std::int64_t floats() const { return taken_; }

 private:
  float* base_;
  std::int64_t taken_ = 0;
};

}  // namespace hybrid_trainer::kernels::cpu
