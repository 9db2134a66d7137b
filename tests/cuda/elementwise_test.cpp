#include "hybrid_trainer/kernels/elementwise.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kElementCounts[] = {1, 7, 1023, 2056};

using Kernel = std::function<void(const Tensors&, const Stream&)>;

/// Compares the kernel on three tensors of each size and real dtype, complete and from their second
/// element on, for which vector loads are misaligned.
void expect_like_cpu_everywhere(const std::string& what, double tolerance, const Kernel& kernel,
                                std::vector<DType> dtypes = {DType::kF32, DType::kBF16}) {
  const Stream host = cpu_stream();
  for (DType dtype : dtypes) {
    for (std::int64_t n : kElementCounts) {
      const Tensors tensors{random_tensor({n}, dtype, 1, host), random_tensor({n}, dtype, 2, host),
                            random_tensor({n}, dtype, 3, host, 3)};
      const double most = dtype == DType::kF32 ? tolerance : tolerance > 0 ? 1e-2 : 0;
      const std::string of = concat(what, " ", n, " ", name_of(dtype));
      expect_like_cpu(tensors, most, of, kernel);
      expect_like_cpu(tensors, most, of + " from element 1",
                      [&](const Tensors& t, const Stream& s) {
                        Tensors rest;
                        for (const Tensor& tensor : t) rest.push_back(tensor.rows(1, n));
                        kernel(rest, s);
                      });
    }
  }
}

TEST(CudaElementwise, AddMatchesCpu) {
  expect_like_cpu_everywhere("add", 0,
                             [](const Tensors& t, const Stream& s) { add(t[0], t[1], t[2], s); });
}

TEST(CudaElementwise, InPlaceAddMatchesCpu) {
  expect_like_cpu_everywhere("add in place", 0,
                             [](const Tensors& t, const Stream& s) { add(t[0], t[0], t[1], s); });
}

TEST(CudaElementwise, AxpyMatchesCpu) {
  expect_like_cpu_everywhere(
      "axpy", 1e-6, [](const Tensors& t, const Stream& s) { axpy(t[0], t[1], -0.3f, t[2], s); },
      {DType::kF32});
  expect_like_cpu_everywhere("axpy by a half", 0, [](const Tensors& t, const Stream& s) {
    axpy(t[0], t[1], 0.5f, t[2], s);
  });
  expect_like_cpu_everywhere(
      "axpy in place", 1e-6,
      [](const Tensors& t, const Stream& s) { axpy(t[0], t[0], 0.7f, t[2], s); }, {DType::kF32});
}

TEST(CudaElementwise, ScaleMatchesCpu) {
  expect_like_cpu_everywhere("scale", 0,
                             [](const Tensors& t, const Stream& s) { scale(t[0], t[1], 1.7f, s); },
                             {DType::kF32});
}

TEST(CudaElementwise, ScaleByMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensor factor = random_tensor({1}, DType::kF32, 3, host);
  for (const DType dtype : kRealTypes)
    for (const std::int64_t n : kElementCounts)
      expect_like_cpu({random_tensor({n}, dtype, 1, host), factor}, 0, concat("scale_by ", n),
                      [](const Tensors& t, const Stream& s) { scale_by(t[0], t[0], t[1], s); });
}

TEST(CudaElementwise, CastMatchesCpu) {
  const Stream host = cpu_stream();
  for (DType to : kRealTypes) {
    for (DType from : kRealTypes) {
      for (std::int64_t n : kElementCounts) {
        const Tensors tensors{random_tensor({n}, to, 1, host), random_tensor({n}, from, 2, host)};
        expect_like_cpu(tensors, 0, concat("cast ", name_of(from), " to ", name_of(to), " ", n),
                        [](const Tensors& t, const Stream& s) { cast(t[0], t[1], s); });
      }
    }
  }
}

TEST(CudaElementwise, GeluMatchesCpu) {
  expect_like_cpu_everywhere(
      "gelu_forward", 2e-6, [](const Tensors& t, const Stream& s) { gelu_forward(t[0], t[2], s); });
  expect_like_cpu_everywhere("gelu_backward", 5e-6, [](const Tensors& t, const Stream& s) {
    gelu_backward(t[0], t[1], t[2], s);
  });
}

TEST(CudaElementwise, GeluHandlesLargeInputsAndNaN) {
  const Stream host = cpu_stream();
  const Values values{-1e4, -40, -12, -1e-30, 0, 1e-30, 12, 40, 1e4};
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensors tensors{tensor_of(values, {count}, DType::kF32, host),
                        tensor_of(Values(values.size(), 1), {count}, DType::kF32, host),
                        tensor_of(values, {count}, DType::kF32, host)};
  expect_like_cpu(tensors, 1e-6, "gelu of far numbers", [](const Tensors& t, const Stream& s) {
    gelu_backward(t[0], t[1], t[2], s);
    gelu_forward(t[1], t[2], s);
  });
  const Stream stream = cuda_stream();
  const Tensor x = copy_to(tensor_of({std::nan("")}, {1}, DType::kF32, host), stream);
  gelu_forward(x, x, stream);
  EXPECT_TRUE(std::isnan(values_of(wait_for_host(x, stream))[0]));
}

TEST(CudaElementwise, DropoutMatchesCpu) {
  for (const RandomKey& key : {RandomKey{1, 0, 5}, RandomKey{9, 1234567890123, 77}}) {
    for (const std::uint64_t first : {0, 3, 1000}) {
      expect_like_cpu_everywhere("dropout", 0, [&](const Tensors& t, const Stream& s) {
        dropout(t[0], t[1], 0.3f, {.key = key, .first = first}, s);
      });
    }
  }
}

TEST(CudaElementwise, DropoutOfSelectedRowsMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensor rows = Tensor::empty({12}, DType::kI32, MemoryKind::kData, host);
  for (std::int32_t row = 0; row < 12; ++row) rows.data<std::int32_t>()[row] = 5 * row % 12;
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t columns : {7, 16}) {
      const Tensors tensors{random_tensor({12, columns}, dtype, 1, host), rows};
      expect_like_cpu(tensors, 0, concat("dropout ", columns, " ", name_of(dtype)),
                      [](const Tensors& t, const Stream& s) {
                        const RandomKey key{3, 4, 5};
                        dropout(t[0], t[0], 0.3f, {.key = key, .first = 3, .rows = t[1]}, s);
                        dropout(t[0], t[0], 0.3f, {.key = key, .run = 4, .stride = 9}, s);
                      });
    }
  }
}

TEST(CudaElementwise, DropoutDropsRequestedFraction) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  const Tensor x = copy_to(tensor_of(Values(4096, 1), {4096}, DType::kF32, host), stream);
  dropout(x, x, 0.25f, {.key = {3, 4, 5}}, stream);
  double kept = 0;
  for (double value : values_of(wait_for_host(x, stream))) kept += value > 0 ? 1 : 0;
  EXPECT_NEAR(kept / 4096, 0.75, 0.03);
}

TEST(CudaElementwise, NormalizeByDeviceScalarMatchesCpu) {
  const Stream host = cpu_stream();
  for (const double squares : {0.0, 2.5}) {
    const Tensor sum = Tensor::empty({1}, DType::kF64, MemoryKind::kActivations, host);
    *sum.data<double>() = squares;
    const Tensors tensors{random_tensor({1023}, DType::kF32, 1, host), sum};
    expect_like_cpu(
        tensors, 1e-6, concat("normalize ", squares),
        [](const Tensors& t, const Stream& s) { normalize(t[0], t[0], t[1], 1e-7, s); });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
