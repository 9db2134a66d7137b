#include "hybrid_trainer/kernels/experts.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNaN = NAN;

struct RoutingCase {
  std::int64_t tokens;
  RoutingSpec spec;
};

/// One expert; every rule, also with groups; pairs of several sort tiles and of two radix digits.
const RoutingCase kRoutingCases[] = {
    {3, {.experts = 1, .chosen = 1}},
    {13, {.experts = 7, .chosen = 3, .rule = RoutingRule::kSoftmax, .scale = 1.5f}},
    {21, {.experts = 40, .chosen = 35, .scale = 0.7f}},
    {30,
     {.experts = 48,
      .chosen = 5,
      .rule = RoutingRule::kSigmoid,
      .scale = 2.5f,
      .groups = 12,
      .chosen_groups = 3}},
    {700,
     {.experts = 300,
      .chosen = 3,
      .rule = RoutingRule::kSigmoid,
      .scale = 2,
      .normalized = false}}};

std::string text(const RoutingCase& c, DType dtype) {
  return concat(c.tokens, " tokens, ", c.spec.chosen, " of ", c.spec.experts, " ", name_of(dtype));
}

/// The tensors of a routing, in the order that a list begins with.
Tensors tensors_of(const Routing& routing) {
  return {routing.experts, routing.weights, routing.places, routing.pairs, routing.offsets};
}
Routing routing_of(const Tensors& t) { return {t[0], t[1], t[2], t[3], t[4]}; }

Tensors joined(Tensors first, const Tensors& others) {
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

Tensor logits_of(const RoutingCase& c, DType dtype, const Stream& host) {
  return random_tensor({c.tokens, c.spec.experts}, dtype, 3, host, 2);
}

Tensors routed(const RoutingCase& c, const Stream& host) {
  const Routing routing = Routing::empty(c.tokens, c.spec, host);
  route(routing, logits_of(c, DType::kF32, host), {}, c.spec, host);
  return tensors_of(routing);
}

TEST(CudaRouting, RouteMatchesCpu) {
  const Stream host = cpu_stream();
  for (const RoutingCase& c : kRoutingCases) {
    const DType dtype = c.tokens % 2 == 0 ? DType::kF32 : DType::kBF16;
    const bool has_bias = c.spec.rule == RoutingRule::kSigmoid;
    const Tensors tensors =
        joined(tensors_of(Routing::empty(c.tokens, c.spec, host)),
               {logits_of(c, dtype, host),
                has_bias ? random_tensor({c.spec.experts}, DType::kF32, 4, host, 0.1) : Tensor()});
    expect_like_cpu(tensors, 1e-6, text(c, dtype), [&](const Tensors& t, const Stream& stream) {
      route(routing_of(t), t[5], t[6], c.spec, stream);
    });
  }
}

/// Ties, and rows with fewer valid numbers than are chosen. NaN weights are skipped.
TEST(CudaRouting, TiesAndNaNLogitsMatchCpu) {
  const Stream host = cpu_stream();
  const Tensor logits = tensor_of(
      {
          kNaN, kNaN, kNaN,       kNaN,       kNaN,       kNaN,        //
          kNaN, 1,    kNaN,       kNaN,       2,          kNaN,        //
          0,    -0.0, 0,          -0.0,       1,          1,           //
          -7,   kNaN, -kInfinite, -kInfinite, -kInfinite, -kInfinite,  //
          5,    1,    kInfinite,  kNaN,       -2,         kInfinite,   //
          -3,   -2,   -1,         -1,         -2,         kNaN,
      },
      {6, 6}, DType::kF32, host);
  const Tensor bias = tensor_of({0, kInfinite, 0, kNaN, -kInfinite, 0}, {6}, DType::kF32, host);
  bool has_bias = false;
  for (const RoutingRule rule :
       {RoutingRule::kSoftmax, RoutingRule::kSoftmaxOfChosen, RoutingRule::kSigmoid}) {
    for (const std::int64_t groups : {1, 3, 6}) {
      const RoutingSpec spec{.experts = 6,
                             .chosen = groups == 1 ? 4 : 2,
                             .rule = rule,
                             .groups = groups,
                             .chosen_groups = groups == 1 ? 1 : 2};
      const Tensors tensors =
          joined(tensors_of(Routing::empty(6, spec, host)), {logits, has_bias ? bias : Tensor()});
      expect_like_cpu(tensors, 0, concat(groups, " groups", has_bias ? " with bias" : ""),
                      [&](const Tensors& t, const Stream& stream) {
                        route(routing_of(t), t[5], t[6], spec, stream);
                        for (const Tensor& with_nan : {t[1], t[5], t[6]}) {
                          if (with_nan) fill_zero(with_nan, stream);
                        }
                      });
      has_bias = !has_bias;
    }
  }
}

TEST(CudaRouting, AcceptsZeroTokens) {
  const Stream host = cpu_stream();
  const RoutingSpec spec{.experts = 5, .chosen = 2};
  const Tensors tensors = joined(
      tensors_of(Routing::empty(0, spec, host)),
      {random_tensor({0, 5}, DType::kF32, 1, host), random_tensor({0, 9}, DType::kF32, 1, host),
       random_tensor({0, 2}, DType::kF32, 1, host),
       Tensor::zeros({routing_numbers(5)}, DType::kF64, MemoryKind::kActivations, host)});
  expect_like_cpu(tensors, 0, "none", [&](const Tensors& t, const Stream& stream) {
    const Routing routing = routing_of(t);
    route(routing, t[5], {}, spec, stream);
    gather_tokens(t[6], t[6], routing, stream);
    weigh_rows(t[7], {}, t[6], t[6], routing, stream);
    combine_rows(t[6], t[6], t[7], t[6], routing, stream);
    route_backward(t[5], t[5], routing, t[7], spec, {1, 1}, stream);
    routing_statistics(t[8], t[5], routing, stream);
  });
}

TEST(CudaRouting, GradientsMatchCpu) {
  const Stream host = cpu_stream();
  for (const RoutingCase& c : kRoutingCases) {
    if (c.tokens > 100) continue;
    for (const RoutingLosses losses : {RoutingLosses{}, RoutingLosses{.balance = 3, .z = 0.7f}}) {
      const DType dtype = losses.z == 0 ? DType::kBF16 : DType::kF32;
      const Tensors tensors =
          joined(routed(c, host), {random_tensor({c.tokens, c.spec.experts}, dtype, 5, host),
                                   logits_of(c, dtype, host),
                                   random_tensor({c.tokens, c.spec.chosen}, DType::kF32, 6, host)});
      expect_like_cpu(tensors, tolerance_of(dtype), text(c, dtype),
                      [&](const Tensors& t, const Stream& stream) {
                        route_backward(t[5], t[6], routing_of(t), t[7], c.spec, losses, stream);
                        route_backward(t[6], t[6], routing_of(t), t[7], c.spec, losses, stream);
                      });
    }
  }
}

/// Statistics accumulated by two calls.
std::vector<double> statistics(const Tensors& tensors, std::int64_t experts, const Stream& stream) {
  const Tensors t = copies_to(tensors, stream);
  const Tensor sums =
      Tensor::zeros({routing_numbers(experts)}, DType::kF64, MemoryKind::kActivations, stream);
  for (int i = 0; i < 2; ++i) routing_statistics(sums, t[5], routing_of(t), stream);
  const Tensor found = wait_for_host(sums, stream);
  return {found.data<double>(), found.data<double>() + found.elements()};
}

TEST(CudaRouting, StatisticsMatchCpu) {
  const Stream host = cpu_stream();
  for (const RoutingCase& c : kRoutingCases) {
    const Tensors tensors = joined(routed(c, host), {logits_of(c, DType::kF32, host)});
    const auto wanted = statistics(tensors, c.spec.experts, host);
    std::vector<double> first;
    in_several_orders([&] {
      const auto found = statistics(tensors, c.spec.experts, cuda_stream());
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(found[i], wanted[i], 1e-6 * (1 + std::abs(wanted[i]))) << i;
      if (first.empty()) first = found;
      EXPECT_EQ(found, first);
    });
  }
}

TEST(CudaRouting, PaddedTokensMatchCpu) {
  const Stream host = cpu_stream();
  for (const RoutingCase& c : kRoutingCases) {
    const Tensor is_token = Tensor::zeros({c.tokens}, DType::kI32, MemoryKind::kData, host);
    for (std::int64_t i = 0; i < c.tokens; ++i) is_token.data<std::int32_t>()[i] = i % 3 != 1;
    const Tensors tensors =
        joined(routed(c, host), {logits_of(c, DType::kF32, host), is_token,
                                 random_tensor({c.tokens, c.spec.chosen}, DType::kF32, 6, host),
                                 Tensor::zeros({2}, DType::kF64, MemoryKind::kActivations, host),
                                 Tensor::zeros({routing_numbers(c.spec.experts)}, DType::kF64,
                                               MemoryKind::kActivations, host)});
    expect_like_cpu(tensors, 1e-5, text(c, DType::kF32), [&](const Tensors& t, const Stream& s) {
      Routing routing = routing_of(t), before = routing;
      routing.is_token = t[6];
      before.experts = t[3].view(t[0].shape());  // different experts
      routing_flips(t[8], routing, before, s);
      routing_statistics(t[9], t[5], routing, s);
      route_backward(t[5], t[5], routing, t[7], c.spec, {.balance = 3, .z = 0.7f}, s);
    });
  }
}

TEST(CudaRouting, GatherCombineAndWeighMatchCpu) {
  const Stream host = cpu_stream();
  for (const std::int64_t columns : {9, 296}) {
    for (const DType dtype : kRealTypes) {
      const RoutingCase& c = kRoutingCases[1];
      const Shape rows{c.tokens * c.spec.chosen, columns};
      const Tensors tensors = joined(
          routed(c, host),
          {random_tensor(rows, dtype, 5, host), random_tensor({c.tokens, columns}, dtype, 6, host),
           random_tensor({c.tokens, columns}, dtype, 7, host), random_tensor(rows, dtype, 8, host),
           random_tensor({c.tokens, c.spec.chosen}, DType::kF32, 9, host),
           random_tensor({c.tokens * c.spec.chosen}, DType::kF32, 10, host)});
      const auto test = [&](const char* what, double tolerance, const auto& call) {
        expect_like_cpu(tensors, tolerance, concat(what, " ", columns, " ", name_of(dtype)),
                        [&](const Tensors& t, const Stream& s) { call(t, routing_of(t), s); });
      };
      test("gather", 0, [](const Tensors& t, const Routing& routing, const Stream& s) {
        gather_tokens(t[5], t[6], routing, s);
      });
      test("combine", tolerance_of(dtype),
           [](const Tensors& t, const Routing& routing, const Stream& s) {
             combine_rows(t[6], t[5], t[9], t[6], routing, s);
             combine_rows(t[7], t[5], {}, {}, routing, s);
           });
      for (const bool adds : {false, true}) {
        test("weigh", tolerance_of(dtype),
             [&](const Tensors& t, const Routing& routing, const Stream& s) {
               weigh_rows(t[9], adds ? t[10] : Tensor{}, t[5], t[8], routing, s);
             });
      }
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
