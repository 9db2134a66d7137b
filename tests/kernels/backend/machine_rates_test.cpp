#include "kernels/backend/machine.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(MachineRates, StayInPlausibleRange) {
  const Stream stream = cpu_stream();
  const double product = measure_product_rate(DType::kF32, stream);
  const double copied = measure_copy_rate(stream);
  const double read = measure_read_rate(stream);
  EXPECT_GT(product, 1e8);
  EXPECT_LT(product, 1e16);
  EXPECT_GT(copied, 1e8);
  EXPECT_LT(copied, 1e14);
  EXPECT_GT(read, 1e8);
  EXPECT_LT(read, 1e14);
  EXPECT_EQ(stream.pool()->use().live_total, 0u);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
