#include "hybrid_trainer/core/progress.h"

#include <atomic>

namespace hybrid_trainer {
namespace {

std::atomic<std::uint64_t> pieces = 0;

}  // namespace

void count_progress() noexcept { pieces.fetch_add(1, std::memory_order_relaxed); }
std::uint64_t progress_so_far() noexcept { return pieces.load(std::memory_order_relaxed); }

}  // namespace hybrid_trainer
