// Kernels of mixtures of experts at GPT-2's width: 64 experts whose matrices have twice as many
// rows as columns, eight experts per token.
#include <algorithm>

#include "hybrid_trainer/kernels/experts.h"
#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {
namespace {

using namespace kernels;

/// 64 experts, or fewer so that each has at least 16 rows.
std::int64_t experts_of(const Sizes& sizes) {
  return std::min<std::int64_t>(64, sizes.rows() / 16);
}

/// Products of `rows` rows, divided equally among the experts.
void time_grouped_products(KernelTimer& timer, std::int64_t rows, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t c = timer.sizes().channels, experts = experts_of(timer.sizes());
  const std::int64_t each = rows / experts;
  const GroupedRows groups{timer.integers({experts + 1}, [=](std::int64_t i) { return i * each; })};
  const auto time = [&](const char* what, DType of_matrices, const auto& call) {
    const std::string name =
        std::string("grouped ") + what + " of " + std::to_string(each) + " rows each";
    timer.time({name, dtype, Limit::kProduct, 0}, [&] {
      const Tensor x = timer.random({rows, c}, dtype), y = timer.random({rows, 2 * c}, dtype);
      std::vector<Tensor> w;
      std::size_t bytes = x.bytes() + y.bytes();
      for (std::int64_t i = 0; i < experts; ++i) {
        w.push_back(timer.random({2 * c, c}, of_matrices));
        bytes += w.back().bytes();
      }
      return Work{4.0 * static_cast<double>(rows * c * c), bytes, [=] { call(x, y, w); }};
    });
  };
  using Matrices = std::vector<Tensor>;
  time("forward", dtype, [=, &stream](const Tensor& x, const Tensor& y, const Matrices& w) {
    grouped_forward(y, x, groups, w, {}, GradientMode::kOverwrite, stream);
  });
  time("dx", dtype, [=, &stream](const Tensor& x, const Tensor& y, const Matrices& w) {
    grouped_backward_input(x, y, groups, w, GradientMode::kOverwrite, stream);
  });
  time("dw", DType::kF32, [=, &stream](const Tensor& x, const Tensor& y, const Matrices& w) {
    grouped_backward_weight(w, y, x, groups, GradientMode::kOverwrite, stream);
  });
}

RoutingSpec mixture_of(const Sizes& sizes) {
  const std::int64_t experts = experts_of(sizes);
  return {.experts = experts, .chosen = std::min<std::int64_t>(8, experts / 2)};
}

Routing routed(const KernelTimer& timer, const Tensor& logits) {
  const RoutingSpec spec = mixture_of(timer.sizes());
  Routing routing = Routing::empty(logits.size(0), spec, timer.stream());
  route(routing, logits, {}, spec, timer.stream());
  return routing;
}

void time_routing(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const RoutingSpec spec = mixture_of(timer.sizes());
  const auto time = [&](const char* name, const auto& call) {
    timer.time({name, dtype, Limit::kCopy, 0}, [&] {
      const Tensor logits = timer.random({timer.sizes().rows(), spec.experts}, dtype);
      const Routing routing = routed(timer, logits);
      const double bytes = bytes_of({logits, routing.experts, routing.weights, routing.places,
                                     routing.pairs, routing.offsets});
      return Work{bytes, static_cast<std::size_t>(bytes), call(logits, routing)};
    });
  };
  time("route", [&](const Tensor& logits, const Routing& routing) {
    return [=, &stream] { route(routing, logits, {}, spec, stream); };
  });
  time("route_backward", [&](const Tensor& logits, const Routing& routing) {
    return [=, &stream] {
      route_backward(logits, logits, routing, routing.weights, spec, {0.01f, 0.001f}, stream);
    };
  });
  time("routing_statistics", [&](const Tensor& logits, const Routing& routing) {
    const Tensor sums =
        Tensor::zeros({routing_numbers(spec.experts)}, DType::kF64, MemoryKind::kWorkspace, stream);
    return [=, &stream] { routing_statistics(sums, logits, routing, stream); };
  });
}

void time_routed_rows(KernelTimer& timer, DType dtype) {
  const Stream& stream = timer.stream();
  const std::int64_t n = timer.sizes().rows() / 8, c = timer.sizes().channels;
  const RoutingSpec spec = mixture_of(timer.sizes());
  const Routing routing = routed(timer, timer.random({n, spec.experts}, DType::kF32));
  const auto make = [&](std::int64_t rows) { return timer.random({rows, c}, dtype); };
  timer.time({"gather_tokens", dtype, Limit::kCopy, 0}, [&] {
    const Tensor x = make(n), rows = make(n * spec.chosen);
    return moving({x, rows}, [=, &stream] { gather_tokens(rows, x, routing, stream); });
  });
  timer.time({"combine_rows", dtype, Limit::kCopy, 0}, [&] {
    const Tensor y = make(n), rows = make(n * spec.chosen);
    return moving({y, y, rows},
                  [=, &stream] { combine_rows(y, rows, routing.weights, y, routing, stream); });
  });
  timer.time({"weigh_rows", dtype, Limit::kCopy, 0}, [&] {
    const Tensor rows = make(n * spec.chosen), drows = make(n * spec.chosen),
                 dweights = timer.random({n, spec.chosen}, DType::kF32);
    return moving({rows, rows, drows, drows},
                  [=, &stream] { weigh_rows(dweights, {}, rows, drows, routing, stream); });
  });
}

}  // namespace

void time_mixture(KernelTimer& timer, DType dtype) {
  for (const std::int64_t rows : {timer.sizes().rows() / 8, timer.sizes().rows()})
    time_grouped_products(timer, rows, dtype);
  time_routing(timer, dtype);
  time_routed_rows(timer, dtype);
}

}  // namespace hybrid_trainer::benchmarks
