#include "tests/emulation/block.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "tests/emulation/async_copies.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::emulation {
namespace {

using boost::context::fiber;

constexpr std::size_t kStackBytes = 128 << 10;

std::atomic<Order> chosen_order = Order::kForward;
std::atomic<unsigned int> chosen_seed = 1;

std::vector<unsigned int> turns(unsigned int count) {
  std::vector<unsigned int> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (chosen_order == Order::kBackward) std::reverse(order.begin(), order.end());
  if (chosen_order == Order::kShuffled) {
    std::shuffle(order.begin(), order.end(), std::mt19937(chosen_seed.load()));
  }
  return order;
}

/// Number of threads of all launches, by kernel name.
class ThreadCounts {
 public:
  void add(const std::string& name, std::int64_t threads) {
    std::lock_guard lock(mutex_);
    counts_[name] += threads;
  }
  std::int64_t of(const std::string& name) {
    std::lock_guard lock(mutex_);
    return counts_[name];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::int64_t> counts_;
};
ThreadCounts thread_counts;

enum class Waits { kNot, kForWarp, kForBlock, kDone };

struct Thread {
  fiber code;
  fiber scheduler;
  Place place;
  Waits waits = Waits::kNot;
  unsigned int mask = 0;  // lanes that it waits for
  int exchanges = 0;      // number of warp operations so far
  AsyncCopies copies;
};

struct Warp {
  std::array<std::array<std::array<char, kSlotBytes>, kLanes>, 2> slots{};
};

/// The block that this operating system thread runs.
struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<std::array<char, 128>> shared;
  unsigned int running = 0;
  std::exception_ptr failure;
};
thread_local Block* block = nullptr;

/// Marks the thread as running a kernel.
struct KernelAtWork {
  explicit KernelAtWork(const char* name) { running_kernel() = name; }
  ~KernelAtWork() { running_kernel() = nullptr; }
};

Thread& running() { return block->threads[block->running]; }

void wait(Waits what) {
  Thread& self = running();
  self.waits = what;
  self.scheduler = std::move(self.scheduler).resume();
}

fiber start(unsigned int index, const std::function<void()>& body) {
  static thread_local boost::context::pooled_fixedsize_stack stacks(kStackBytes);
  return fiber(std::allocator_arg, stacks, [index, &body](fiber&& scheduler) {
    Thread& self = block->threads[index];
    self.scheduler = std::move(scheduler);
    try {
      body();
    } catch (const boost::context::detail::forced_unwind&) {
      throw;
    } catch (...) {
      block->failure = std::current_exception();
    }
    self.waits = Waits::kDone;
    return std::move(self.scheduler);
  });
}

void run(unsigned int index) {
  Thread& thread = block->threads[index];
  block->running = index;
  thread.code = std::move(thread.code).resume();
  if (block->failure) std::rethrow_exception(block->failure);
}

/// Releases the lanes of a warp whose entire mask has arrived.
bool release_lanes(std::size_t first, std::size_t end) {
  unsigned int there = 0, waiting = 0;
  for (std::size_t i = first; i < end; ++i) {
    there |= 1u << (i - first);
    if (block->threads[i].waits == Waits::kForWarp) waiting |= 1u << (i - first);
  }
  bool any = false;
  for (std::size_t i = first; i < end; ++i) {
    Thread& thread = block->threads[i];
    const unsigned int wanted = thread.mask & there;
    if (thread.waits != Waits::kForWarp || (waiting & wanted) != wanted) continue;
    thread.waits = Waits::kNot;
    any = true;
  }
  return any;
}

/// Runs one warp as far as it gets alone, so that a missing __syncthreads changes results.
void run_warp(unsigned int warp, const std::vector<unsigned int>& lanes) {
  const unsigned int first = warp * kLanes;
  const auto end = std::min(static_cast<unsigned int>(block->threads.size()), first + kLanes);
  do {
    for (unsigned int lane : lanes) {
      const unsigned int index = first + lane;
      if (index < end && block->threads[index].waits == Waits::kNot) run(index);
    }
  } while (release_lanes(first, end));
}

bool all(Waits what) {
  return std::all_of(block->threads.begin(), block->threads.end(), [&](const Thread& thread) {
    return thread.waits == what || thread.waits == Waits::kDone;
  });
}

uint3 blocks_of(const kernels::cuda::Grid& grid) {
  const auto size = [](std::int64_t n) { return static_cast<unsigned int>(n); };
  return {size(grid.x), size(grid.y), size(grid.z)};
}

void run_block(const char* name, const kernels::cuda::Grid& grid, uint3 at,
               const std::function<void()>& body) {
  Block self;
  block = &self;
  const uint3 blocks = blocks_of(grid);
  const auto threads = static_cast<unsigned int>(grid.threads);
  self.threads = std::vector<Thread>(threads);
  self.warps.resize((threads + kLanes - 1) / kLanes);
  self.shared.resize((grid.shared_bytes + 127) / 128 + 1);
  std::memset(self.shared.data(), 0xFF, self.shared.size() * 128);  // NaN in every float type
  for (unsigned int i = 0; i < threads; ++i) {
    self.threads[i].place = {{i, 0, 0}, at, {threads, 1, 1}, {blocks.x, blocks.y, blocks.z}};
    self.threads[i].code = start(i, body);
  }
  const auto warps = turns(static_cast<unsigned int>(self.warps.size()));
  const auto lanes = turns(kLanes);
  while (true) {
    for (unsigned int warp : warps) run_warp(warp, lanes);
    if (all(Waits::kDone)) break;
    if (!all(Waits::kForBlock)) {
      throw Error(ExitCode::kInternal, concat(name,
                                              ": threads of a block wait for others that "
                                              "ended or wait elsewhere"));
    }
    for (Thread& thread : self.threads) {
      if (thread.waits == Waits::kForBlock) thread.waits = Waits::kNot;
    }
  }
  block = nullptr;
}

}  // namespace

Place& place() { return running().place; }

AsyncCopies& async_copies() { return running().copies; }

void synchronize_block() { wait(Waits::kForBlock); }

const char* exchange(unsigned int mask, const void* mine, std::size_t bytes) {
  Thread& self = running();
  const auto turn = static_cast<std::size_t>(self.exchanges++ % 2);
  auto& slots = block->warps[self.place.thread.x / kLanes].slots[turn];
  std::memcpy(slots[static_cast<std::size_t>(lane())].data(), mine, bytes);
  self.mask = mask;
  wait(Waits::kForWarp);
  return slots.front().data();
}

void* shared_memory() {
  char* begin = block->shared.front().data();
  return begin + (128 - reinterpret_cast<std::uintptr_t>(begin) % 128) % 128;
}

void set_order(Order order, unsigned int seed) {
  chosen_order = order;
  chosen_seed = seed;
}

void run_grid(const char* name, const kernels::cuda::Grid& grid,
              const std::function<void()>& body) {
  if (grid.threads > 1024 || grid.threads == 0 || grid.shared_bytes > device().shared_bytes ||
      grid.y > 65535 || grid.z > 65535) {
    throw Error(ExitCode::kInternal, concat(name, ": no device takes a grid of this size"));
  }
  thread_counts.add(name, grid.x * grid.y * grid.z * grid.threads);
  const KernelAtWork at_work(name);
  const uint3 blocks = blocks_of(grid);
  for (unsigned int index : turns(blocks.x * blocks.y * blocks.z)) {
    const uint3 at{index % blocks.x, index / blocks.x % blocks.y, index / blocks.x / blocks.y};
    run_block(name, grid, at, body);
  }
}

std::int64_t threads_run(const std::string& name) { return thread_counts.of(name); }

}  // namespace hybrid_trainer::emulation
