#include "kernels/backend/tensor_core.cuh"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::emulation {

std::int64_t& bank_conflicts() {
  static std::int64_t count = 0;
  return count;
}

std::int64_t& multiply_adds() {
  static std::int64_t count = 0;
  return count;
}

void require_aligned(std::uintptr_t at, const char* what) {
  if (at % 16 == 0) return;
  throw Error(ExitCode::kInternal, concat(what, " is not a multiple of 16 bytes"));
}

Exchanged<const std::uint16_t*> matrix_rows(std::uintptr_t row) {
  require_aligned(row, "load_matrices: a row");
  const auto rows = exchange(0xFFFFFFFFu, reinterpret_cast<const std::uint16_t*>(row));
  if (lane() != 0) return rows;
  for (int i = 0; i < 4; ++i) {
    std::array<int, 8> passes{};  // of each of the eight groups of four banks
    for (int r = 0; r < 8; ++r) {
      ++passes[reinterpret_cast<std::uintptr_t>(rows.of(8 * i + r)) / 16 % 8];
    }
    bank_conflicts() += *std::max_element(passes.begin(), passes.end()) - 1;
  }
  return rows;
}

void AsyncCopies::copy(void* to, const void* from) {
  std::memset(to, 0xFF, 16);
  pending_.push_back({to, from, group_});
}

void AsyncCopies::wait(int groups) {
  std::size_t done = 0;
  while (done < pending_.size() && pending_[done].group < group_ - groups) {
    const Copy& copy = pending_[done++];
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, 16);
    } else {
      std::memcpy(copy.to, copy.from, 16);
    }
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace hybrid_trainer::emulation
