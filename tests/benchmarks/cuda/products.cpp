#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using namespace kernels;

/// One matrix of a block, of shape (outputs, inputs).
struct Linear {
  std::string name;
  std::int64_t outputs, inputs;
  bool adds_residual, applies_gelu;
};

/// The operands of one matrix product.
struct LinearTensors {
  Tensor x, w, bias, y, other, dw;
  Work work(double operations, std::function<void()> run) const {
    return {operations, static_cast<std::size_t>(bytes_of({x, w, y, other, dw})), std::move(run)};
  }
};

void time_linear(KernelTimer& timer, const Linear& linear, DType dtype) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t n = sizes.rows(), o = linear.outputs, i = linear.inputs;
  const double layers = static_cast<double>(sizes.layers);
  const double operations = 2.0 * static_cast<double>(n) * static_cast<double>(o * i);
  const auto tensors = [&](std::int64_t other_columns, bool with_gradient) {
    return LinearTensors{timer.random({n, i}, dtype),
                         timer.random({o, i}, dtype),
                         timer.random({o}, DType::kF32),
                         timer.random({n, o}, dtype),
                         other_columns > 0 ? timer.random({n, other_columns}, dtype) : Tensor{},
                         with_gradient ? timer.random({o, i}, DType::kF32) : Tensor{}};
  };
  const auto product = [&](const std::string& what, double calls,
                           const std::function<Work()>& make) {
    timer.time({linear.name + " " + what, dtype, Limit::kProduct, calls}, make);
  };
  product(linear.applies_gelu ? "forward with gelu" : "forward", layers, [&] {
    const LinearTensors t = tensors(linear.adds_residual || linear.applies_gelu ? o : 0, false);
    if (linear.applies_gelu) {
      return t.work(operations,
                    [=, &stream] { linear_gelu_forward(t.other, t.y, t.x, t.w, t.bias, stream); });
    }
    return t.work(operations,
                  [=, &stream] { linear_forward(t.y, t.x, t.w, t.bias, t.other, stream); });
  });
  product(linear.name == "down" ? "dx with gelu" : "dx", layers, [&] {
    const LinearTensors t = tensors(linear.name == "down" ? i : 0, false);
    if (t.other) {
      return t.work(operations,
                    [=, &stream] { linear_gelu_backward_input(t.x, t.y, t.w, t.other, stream); });
    }
    return t.work(operations, [=, &stream] { linear_backward_input(t.x, t.y, t.w, stream); });
  });
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
    const bool adds = mode == GradientMode::kAccumulate;
    product(adds ? "dw accumulating" : "dw", 0, [&] {
      const LinearTensors t = tensors(0, true);
      return t.work(operations,
                    [=, &stream] { linear_backward_weight(t.dw, t.y, t.x, mode, stream); });
    });
  }
  product("dw and dbias", layers, [&] {
    const LinearTensors t = tensors(0, true);
    return t.work(operations, [=, &stream] {
      linear_backward_parameters(t.dw, t.bias, t.y, t.x, GradientMode::kOverwrite, stream);
    });
  });
  timer.time({linear.name + " dbias", dtype, Limit::kRead, 0}, [&] {
    const Tensor dy = timer.random({n, o}, dtype), dbias = timer.random({o}, DType::kF32);
    return Work{bytes_of({dy}), dy.bytes(),
                [=, &stream] { bias_backward(dbias, dy, GradientMode::kOverwrite, stream); }};
  });
}

void time_head_chunk(KernelTimer& timer, std::int64_t rows, double calls, DType dtype) {
  const Sizes& sizes = timer.sizes();
  const Stream& stream = timer.stream();
  const std::int64_t c = sizes.channels, v = sizes.padded_vocabulary;
  const std::string name = "head of " + std::to_string(rows) + " rows: ";
  const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(v * c);
  // All chunks share one table and one gradient, as in a step.
  const Tensor table = timer.random({v, c}, dtype), dtable = timer.random({v, c}, DType::kF32);
  const auto product = [&](const char* what, double times, auto call) {
    timer.time({name + what, dtype, Limit::kProduct, times}, [&] {
      const Tensor x = timer.random({rows, c}, dtype), logits = timer.random({rows, v}, dtype);
      const auto bytes = static_cast<std::size_t>(bytes_of({x, logits, table}));
      return Work{operations, bytes, [=] { call(x, logits); }};
    });
  };
  product("forward", calls, [&stream, table](const Tensor& x, const Tensor& logits) {
    linear_forward(logits, x, table, Tensor{}, Tensor{}, stream);
  });
  product("dx", calls, [&stream, table](const Tensor& x, const Tensor& logits) {
    linear_backward_input(x, logits, table, stream);
  });
  product("dw accumulating", calls, [&stream, dtable](const Tensor& x, const Tensor& logits) {
    linear_backward_weight(dtable, logits, x, GradientMode::kAccumulate, stream);
  });
  timer.time({name + "cross entropy", dtype, Limit::kCopy, calls}, [&] {
    const Tensor logits = timer.random({rows, v}, dtype),
                 losses = timer.random({rows}, DType::kF32), targets = timer.tokens({rows});
    return Work{2 * bytes_of({logits}), logits.bytes(), [=, &stream, &sizes] {
                  softmax_cross_entropy(losses, logits, targets, sizes.vocabulary, 1e-3f, stream);
                }};
  });
}

}  // namespace

void time_products(KernelTimer& timer, DType dtype) {
  const std::int64_t c = timer.sizes().channels;
  time_linear(timer, {"qkv", 3 * c, c, false, false}, dtype);
  time_linear(timer, {"projection", c, c, true, false}, dtype);
  time_linear(timer, {"up", 4 * c, c, false, true}, dtype);
  time_linear(timer, {"down", c, 4 * c, true, false}, dtype);
}

void time_head(KernelTimer& timer, DType dtype) {
  const Sizes& sizes = timer.sizes();
  for (const std::int64_t rows : sizes.head_rows) {
    const bool own = rows == sizes.head_rows[dtype == DType::kBF16 ? 0 : 1];
    const double chunks = static_cast<double>(sizes.rows()) / static_cast<double>(rows);
    time_head_chunk(timer, rows, own ? chunks : 0, dtype);
  }
  timer.time({"mean loss", dtype, Limit::kRead, 1}, [&] {
    const Tensor losses = timer.random({sizes.rows()}, DType::kF32),
                 result = empty_result(timer.stream());
    return Work{bytes_of({losses}), losses.bytes(),
                [=, &timer] { quotient(result, losses, 1, timer.stream()); }};
  });
}

}  // namespace hybrid_trainer::benchmarks
