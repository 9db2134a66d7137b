#include "tests/cuda/orders.h"

#include "tests/cuda/apart_memory.h"
#include "tests/emulation/block.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer {

void in_several_orders(const std::function<void()>& run) {
  using emulation::Order;
  for (const Order order : {Order::kForward, Order::kBackward, Order::kShuffled}) {
    emulation::set_order(order);
    run();
  }
  emulation::set_order(Order::kForward);
}

std::unique_ptr<MemorySource> test_memory() {
  return std::make_unique<ApartMemory>(find_device("cuda"));
}

StepSizes step_sizes() { return {2, 80, 2, 64, 150, 192, 40}; }

double loss_tolerance() { return 1e-5; }

double gelu_tolerance() { return 2e-5; }

int recordings_replayed() { return emulation::device().replays; }

}  // namespace hybrid_trainer
