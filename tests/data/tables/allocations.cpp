#include "tests/data/tables/allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local std::size_t largest = 0;
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (bytes > largest) largest = bytes;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (bytes > largest) largest = bytes;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace hybrid_trainer {

std::size_t largest_allocation() { return largest; }
void forget_allocations() { largest = 0; }

}  // namespace hybrid_trainer
