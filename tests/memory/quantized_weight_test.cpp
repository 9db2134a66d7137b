#include "hybrid_trainer/memory/quantized_weight.h"

#include <gtest/gtest.h>

#include <map>

#include "hybrid_trainer/core/pools.h"
#include "support/parameters.h"

namespace hybrid_trainer::testing {
namespace {

std::unique_ptr<QuantizedWeight> in_parts(const Tensor& values, std::int64_t rows_of_first,
                                          const char* form, const Stream& home) {
  std::vector<QuantizedRows> parts;
  if (rows_of_first > 0) parts.push_back(quantize_rows(values.rows(0, rows_of_first), form, home));
  parts.push_back(quantize_rows(values.rows(rows_of_first, values.size(0)), form, home));
  return std::make_unique<QuantizedWeight>(values.shape(), std::move(parts));
}

TEST(QuantizedWeight, TakesLittleMemoryForAWeight) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({512, 1024}, 1, stream);
  const std::map<const char*, double> most{{"nf4", 0.52}, {"fp4", 0.52}, {"int8", 1.01}};
  for (const auto& [form, bytes_of_one] : most) {
    const Stream home(make_device_pool());
    const auto weight = in_parts(values, 256, form, home);
    const auto bytes = static_cast<double>(home.pool()->use().live_total);
    EXPECT_LT(bytes / static_cast<double>(values.elements()), bytes_of_one) << form;
  }
}

TEST(QuantizedWeight, PartsAreQuantizedEachByItselfAndHeldWhileTheyAreRead) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({6, 64 / 2 + 1}, 1, stream);
  const std::map<const char*, double> worst{{"nf4", 0.12}, {"fp4", 0.16}, {"int8", 0.01}};
  for (const auto& [form, error] : worst) {
    const auto whole = in_parts(values, 0, form, stream);
    Parameter parameter("w", values.shape(), Role::kMatrix, in_parts(values, 2, form, stream));
    const std::size_t before = stream.pool()->use().live_total;
    {
      const Weight held = parameter.acquire_master(stream),
                   again = parameter.acquire_master(stream);
      EXPECT_EQ(held.tensor().raw(), again.tensor().raw());
      EXPECT_LT(relative_error(values_of(held.tensor()), values_of(values)), error) << form;
      EXPECT_EQ(same_bits(held.tensor(), whole->acquire(DType::kF32, stream)),
                std::string(form) == "int8")
          << form << ": rows are alone in int8 anyhow";
      whole->release(DType::kF32, Use::kRead, stream);
    }
    EXPECT_EQ(stream.pool()->use().live_total, before);
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
