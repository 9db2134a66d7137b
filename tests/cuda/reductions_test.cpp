#include "hybrid_trainer/kernels/reductions.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Runs the reduction on CUDA in several orders, which must agree, and compares it with the CPU's.
void expect_value_like_cpu(
    const Tensors& tensors, const std::string& what,
    const std::function<void(const Tensor&, const Tensors&, const Stream&)>& kernel) {
  const Stream host = cpu_stream();
  const Tensor wanted = empty_result(host);
  kernel(wanted, tensors, host);
  const double value = wait_for_value(wanted, host);
  std::vector<double> found;
  in_several_orders([&] {
    const Stream stream = cuda_stream();
    const Tensor result = empty_result(stream);
    kernel(result, copies_to(tensors, stream), stream);
    found.push_back(wait_for_value(result, stream));
  });
  EXPECT_NEAR(found[0], value, 1e-9 * (1 + std::abs(value))) << what;
  for (double one : found) EXPECT_EQ(one, found[0]) << what;
}

TEST(CudaReductions, DotMatchesCpu) {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    for (std::int64_t n : {1, 3, 255, 16384, 40007}) {
      const Tensors pair{random_tensor({n}, dtype, 1, host), random_tensor({n}, dtype, 2, host)};
      expect_value_like_cpu(pair, concat("dot ", n, " ", name_of(dtype)),
                            [](const Tensor& result, const Tensors& t, const Stream& s) {
                              dot(result, {&t[0], 1}, {&t[1], 1}, {}, s);
                            });
    }
  }
}

TEST(CudaReductions, ChunkDotsMatchCpu) {
  for (DType dtype : kRealTypes) {
    for (std::int64_t n : {1, 4096, 10001}) {
      const Stream host = cpu_stream();
      const Tensors pair{random_tensor({n}, dtype, 1, host), random_tensor({n}, dtype, 2, host)};
      const auto sums_on = [&](const Stream& stream) {
        const Tensors here = copies_to(pair, stream);
        const Tensor sums =
            Tensor::empty({dot_chunks(n)}, DType::kF64, MemoryKind::kWorkspace, stream);
        chunk_dots(sums, here[0], here[1], stream);
        return wait_for_host(sums, stream);
      };
      const Tensor wanted = sums_on(host);
      in_several_orders([&] {
        const Tensor found = sums_on(cuda_stream());
        for (std::int64_t c = 0; c < dot_chunks(n); ++c)
          EXPECT_NEAR(found.data<double>()[c], wanted.data<double>()[c], 1e-9) << n;
      });
    }
  }
}

TEST(CudaReductions, SumOfSquaresOfMixedDtypesMatchesCpu) {
  const Stream host = cpu_stream();
  Tensors tensors;
  for (std::int64_t k = 0; k < 150; ++k) {
    tensors.push_back(random_tensor({k == 70 ? 33000 : 1 + k % 7},
                                    k % 50 < 3 ? DType::kBF16 : DType::kF32,
                                    static_cast<std::uint64_t>(k), host));
  }
  expect_value_like_cpu(tensors, "sum_of_squares",
                        [](const Tensor& result, const Tensors& t, const Stream& s) {
                          sum_of_squares(result, t, s);
                        });
}

TEST(CudaReductions, EmptyInputSumsToZero) {
  const Stream stream = cuda_stream();
  const Tensor result = empty_result(stream);
  dot(result, {}, {}, {}, stream);
  EXPECT_EQ(wait_for_value(result, stream), 0);
  EXPECT_EQ(wait_for_sum_of_squares(
                Tensor::empty({0}, DType::kF32, MemoryKind::kActivations, stream), stream),
            0);
}

TEST(CudaReductions, AlignmentDoesNotChangeBits) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  for (DType dtype : kRealTypes) {
    const Tensor x = random_tensor({5001}, dtype, 1, host);
    const Tensor whole = copy_to(x, stream);
    const Tensor moved =
        Tensor::empty({5002}, dtype, MemoryKind::kActivations, stream).rows(1, 5002);
    wait_for_copy(moved, x, stream);
    EXPECT_EQ(wait_for_sum_of_squares(whole, stream), wait_for_sum_of_squares(moved, stream));
    EXPECT_EQ(wait_for_dot(whole, moved, stream), wait_for_dot(whole, whole, stream));
  }
}

TEST(CudaReductions, SumOfSquaresPropagatesNonFinite) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  for (double bad : {std::nan(""), HUGE_VAL}) {
    Values values(1000, 1);
    values[999] = bad;
    const Tensor x = copy_to(tensor_of(values, {1000}, DType::kBF16, host), stream);
    EXPECT_FALSE(std::isfinite(wait_for_sum_of_squares(x, stream)));
  }
}

TEST(CudaReductions, QuotientMatchesCpu) {
  const Stream host = cpu_stream();
  for (std::int64_t n : {1, 5, 1000, 20011}) {
    expect_value_like_cpu({random_tensor({n}, DType::kF32, 3, host)}, concat("quotient ", n),
                          [](const Tensor& result, const Tensors& t, const Stream& s) {
                            quotient(result, t[0], 3, s);
                          });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
