#include "hybrid_trainer/kernels/experts.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr RoutingRule kRules[] = {RoutingRule::kSoftmax, RoutingRule::kSoftmaxOfChosen,
                                  RoutingRule::kSigmoid};
constexpr std::int64_t kTokens = 13;

RoutingSpec spec_of(RoutingRule rule) {
  return {.experts = 7, .chosen = 3, .rule = rule, .scale = 1.5f, .epsilon = 0.25f};
}

std::vector<std::int32_t> ids_of(const Tensor& tensor) {
  const auto* const begin = tensor.data<std::int32_t>();
  return {begin, begin + tensor.elements()};
}

Routing routed(const Tensor& logits, const RoutingSpec& spec, const Stream& stream,
               const Tensor& bias = {}) {
  Routing routing = Routing::empty(logits.size(0), spec, stream);
  route(routing, logits, bias, spec, stream);
  return routing;
}

Tensor f64_tensor(const Values& values, const Shape& shape, const Stream& stream) {
  Tensor tensor = Tensor::empty(shape, DType::kF64, MemoryKind::kWorkspace, stream);
  std::ranges::copy(values, tensor.data<double>());
  return tensor;
}

/// Weights of all experts for one token, by definition.
Values weights_by_definition(const Values& logits, const std::vector<std::int32_t>& chosen,
                             const RoutingSpec& spec) {
  Values shares;
  for (const double logit : logits)
    shares.push_back(spec.rule == RoutingRule::kSigmoid ? 1 / (1 + std::exp(-logit))
                                                        : std::exp(logit));
  double sum = 0;
  if (spec.rule == RoutingRule::kSoftmax) {
    sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  } else {
    for (const std::int32_t e : chosen) sum += shares[static_cast<std::size_t>(e)];
  }
  if (spec.rule == RoutingRule::kSigmoid) sum += static_cast<double>(spec.epsilon);
  Values weights;
  for (const std::int32_t e : chosen)
    weights.push_back(static_cast<double>(spec.scale) * shares[static_cast<std::size_t>(e)] / sum);
  return weights;
}

TEST(Routing, ChoosesTopExpertsAndWeighsByRule) {
  const Stream stream = cpu_stream();
  for (const RoutingRule rule : kRules) {
    for (const DType dtype : kRealTypes) {
      const RoutingSpec spec = spec_of(rule);
      const Tensor logits = random_tensor({kTokens, spec.experts}, dtype, 1, stream, 2);
      const Routing routing = routed(logits, spec, stream);
      const Values all = values_of(logits);
      const auto experts = ids_of(routing.experts);
      Values wanted;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const Values row(all.begin() + t * spec.experts, all.begin() + (t + 1) * spec.experts);
        std::vector<std::int32_t> order(row.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](auto a, auto b) {
          return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
        });
        order.resize(static_cast<std::size_t>(spec.chosen));
        EXPECT_TRUE(std::equal(order.begin(), order.end(), experts.begin() + t * spec.chosen));
        const Values weights = weights_by_definition(row, order, spec);
        wanted.insert(wanted.end(), weights.begin(), weights.end());
      }
      expect_close(routing.weights, wanted, 1e-6);
    }
  }
}

TEST(Routing, SortsPairsByExpertThenToken) {
  const Stream stream = cpu_stream();
  const RoutingSpec spec = spec_of(RoutingRule::kSoftmax);
  const Routing routing =
      routed(random_tensor({kTokens, spec.experts}, DType::kF32, 3, stream), spec, stream);
  const auto experts = ids_of(routing.experts), places = ids_of(routing.places),
             pairs = ids_of(routing.pairs), offsets = ids_of(routing.offsets);
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_EQ(offsets.back(), kTokens * spec.chosen);
  for (std::size_t row = 0; row < pairs.size(); ++row) {
    const auto pair = static_cast<std::size_t>(pairs[row]);
    EXPECT_EQ(places[pair], static_cast<std::int32_t>(row));
    const auto expert = static_cast<std::size_t>(experts[pair]);
    EXPECT_GE(static_cast<std::int32_t>(row), offsets[expert]);
    EXPECT_LT(static_cast<std::int32_t>(row), offsets[expert + 1]);
    const bool has_next = static_cast<std::int32_t>(row) + 1 < offsets[expert + 1];
    EXPECT_TRUE(!has_next || pairs[row] < pairs[row + 1]);
  }
}

TEST(Routing, TieChoosesLowerExpert) {
  const Stream stream = cpu_stream();
  const RoutingSpec spec{.experts = 5, .chosen = 2};
  const Routing routing =
      routed(tensor_of({1, 3, 3, 3, 0}, {1, 5}, DType::kF32, stream), spec, stream);
  EXPECT_EQ(ids_of(routing.experts), (std::vector<std::int32_t>{1, 2}));
}

TEST(Routing, BiasAffectsChoiceNotWeights) {
  const Stream stream = cpu_stream();
  const RoutingSpec spec{.experts = 4, .chosen = 2, .rule = RoutingRule::kSigmoid};
  const Tensor logits = tensor_of({2, 1, 0, -1}, {1, 4}, DType::kF32, stream),
               bias = tensor_of({0, 0, 0, 5}, {4}, DType::kF32, stream);
  const Routing routing = routed(logits, spec, stream, bias);
  EXPECT_EQ(ids_of(routing.experts), (std::vector<std::int32_t>{3, 0}));
  expect_close(routing.weights, weights_by_definition({2, 1, 0, -1}, {3, 0}, spec), 1e-6);
}

TEST(Routing, BiasMovesTowardBalancedLoadOfAllRanks) {
  const Stream stream = cpu_stream();
  const Tensor bias = tensor_of({0, 1, 2, 3}, {4}, DType::kF32, stream),
               counts = f64_tensor({5, 1, 0, 2, 99, 0, 0, 3, 1, 99}, {2, 5}, stream);
  move_selection_bias(bias, counts, 0.25f, stream);  // loads 5, 1, 3, 3 with mean 3
  expect_close(bias, {-0.25, 1.25, 2, 3}, 0);
}

TEST(Routing, FlipsCountNewPairs) {
  const Stream stream = cpu_stream();
  const RoutingSpec spec{.experts = 4, .chosen = 2, .rule = RoutingRule::kSoftmax};
  const Routing now = routed(tensor_of({4, 3, 0, 0, 0, 0, 3, 4}, {2, 4}, DType::kF32, stream), spec,
                             stream),
                before = routed(tensor_of({3, 4, 0, 0, 0, 3, 4, 0}, {2, 4}, DType::kF32, stream),
                                spec, stream);
  const Tensor sums = f64_tensor({10, 20}, {2}, stream);
  routing_flips(sums, now, before, stream);
  EXPECT_EQ(sums.data<double>()[0], 11);
  EXPECT_EQ(sums.data<double>()[1], 24);  // the order does not matter; 3 replaced 1
}

TEST(Routing, ChoosesOnlyFromBestGroups) {
  const Stream stream = cpu_stream();
  const RoutingSpec spec{
      .experts = 6, .chosen = 3, .rule = RoutingRule::kSigmoid, .groups = 3, .chosen_groups = 2};
  // The second group has the best expert but the smallest sum of two.
  const Tensor logits = tensor_of({1, 1, 3, -9, 0.5, 0.6}, {1, 6}, DType::kF32, stream);
  EXPECT_EQ(ids_of(routed(logits, spec, stream).experts), (std::vector<std::int32_t>{0, 1, 5}));
}

TEST(Routing, NaNLogitsKeepIndicesInBounds) {
  const Stream stream = cpu_stream();
  for (const RoutingRule rule : kRules) {
    const RoutingSpec spec = spec_of(rule);
    const Tensor logits = random_tensor({2, spec.experts}, DType::kF32, 1, stream);
    std::fill_n(logits.data<float>(), spec.experts, std::nanf(""));
    const Routing routing = routed(logits, spec, stream);
    const auto experts = ids_of(routing.experts);
    EXPECT_EQ(std::set<std::int32_t>(experts.begin(), experts.begin() + 3).size(), 3u);
    for (const std::int32_t e : experts) EXPECT_TRUE(e >= 0 && e < spec.experts);
    EXPECT_TRUE(std::isnan(routing.weights.data<float>()[0]));
  }
}

/// Padding after the tokens changes no loss, statistic or flip, and gets no gradient from losses.
TEST(Routing, IgnoresPadding) {
  const Stream stream = cpu_stream();
  constexpr std::int64_t kPadding = 6;
  for (const RoutingRule rule : kRules) {
    const RoutingSpec spec = spec_of(rule);
    const Tensor padded =
                     random_tensor({kTokens + kPadding, spec.experts}, DType::kF32, 5, stream, 2),
                 tokens = padded.rows(0, kTokens);
    const Tensor is_token =
        Tensor::zeros({kTokens + kPadding}, DType::kI32, MemoryKind::kData, stream);
    std::fill_n(is_token.data<std::int32_t>(), kTokens, 1);
    const auto measured = [&](const Tensor& logits, const Tensor& marks) {
      Routing routing = routed(logits, spec, stream);
      Routing before =
          routed(random_tensor({kTokens + kPadding, spec.experts}, DType::kF32, 9, stream)
                     .rows(0, logits.size(0)),
                 spec, stream);
      routing.is_token = marks;
      const Tensor dlogits = Tensor::empty_like(logits, MemoryKind::kActivations, stream),
                   sums = Tensor::zeros({routing_numbers(spec.experts)}, DType::kF64,
                                        MemoryKind::kActivations, stream),
                   flips = Tensor::zeros({2}, DType::kF64, MemoryKind::kActivations, stream),
                   dweights = Tensor::zeros({logits.size(0), spec.chosen}, DType::kF32,
                                            MemoryKind::kActivations, stream);
      route_backward(dlogits, logits, routing, dweights, spec, {.balance = 3, .z = 0.7f}, stream);
      routing_statistics(sums, logits, routing, stream);
      routing_flips(flips, routing, before, stream);
      Values all = values_of(dlogits);
      all.insert(all.end(), sums.data<double>(), sums.data<double>() + sums.elements());
      all.insert(all.end(), flips.data<double>(), flips.data<double>() + 2);
      return all;
    };
    Values wanted = measured(tokens, {});
    wanted.insert(wanted.begin() + kTokens * spec.experts,
                  static_cast<std::size_t>(kPadding * spec.experts), 0.0);
    EXPECT_EQ(measured(padded, is_token), wanted);
  }
}

/// Σ dweights·weights plus the losses, for the experts chosen by a routing.
Values objective_of(const Tensor& logits, const Routing& routing, const RoutingSpec& spec,
                    const Values& dweights, const RoutingLosses& losses) {
  const Values all = values_of(logits);
  const auto experts = ids_of(routing.experts), offsets = ids_of(routing.offsets);
  double sum = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const Values row(all.begin() + t * spec.experts, all.begin() + (t + 1) * spec.experts);
    const std::vector<std::int32_t> chosen(experts.begin() + t * spec.chosen,
                                           experts.begin() + (t + 1) * spec.chosen);
    const Values weights = weights_by_definition(row, chosen, spec);
    for (std::size_t j = 0; j < weights.size(); ++j)
      sum += weights[j] * dweights[static_cast<std::size_t>(t * spec.chosen) + j];
    double exponentials = 0;
    for (const double logit : row) exponentials += std::exp(logit);
    const double log_sum = std::log(exponentials);
    sum += static_cast<double>(losses.z) * log_sum * log_sum / kTokens;
    for (std::size_t e = 0; e < row.size(); ++e)
      sum += static_cast<double>(losses.balance) * static_cast<double>(spec.experts) / kTokens /
             kTokens * (offsets[e + 1] - offsets[e]) * std::exp(row[e]) / exponentials;
  }
  return {sum};
}

TEST(Routing, GradientsMatchFiniteDifferences) {
  const Stream stream = cpu_stream();
  for (const RoutingRule rule : kRules) {
    for (const RoutingLosses losses : {RoutingLosses{}, RoutingLosses{.balance = 3, .z = 0.7f}}) {
      const RoutingSpec spec = spec_of(rule);
      const Tensor logits = random_tensor({kTokens, spec.experts}, DType::kF32, 5, stream, 2),
                   dweights = random_tensor({kTokens, spec.chosen}, DType::kF32, 6, stream);
      const Routing routing = routed(logits, spec, stream);
      const Tensor dlogits = Tensor::empty_like(logits, MemoryKind::kActivations, stream);
      route_backward(dlogits, logits, routing, dweights, spec, losses, stream);
      const Values wanted = finite_differences(logits, {1}, 1e-2, [&] {
        return objective_of(logits, routing, spec, values_of(dweights), losses);
      });
      expect_close(dlogits, wanted, 2e-4);
    }
  }
}

TEST(Routing, StatisticsMatchReference) {
  const Stream stream = cpu_stream();
  const RoutingSpec spec = spec_of(RoutingRule::kSoftmaxOfChosen);
  const Tensor logits = random_tensor({kTokens, spec.experts}, DType::kF32, 7, stream);
  const Routing routing = routed(logits, spec, stream);
  const Tensor sums =
      Tensor::zeros({routing_numbers(spec.experts)}, DType::kF64, MemoryKind::kActivations, stream);
  for (int twice = 0; twice < 2; ++twice) routing_statistics(sums, logits, routing, stream);
  const auto offsets = ids_of(routing.offsets);
  Values wanted(static_cast<std::size_t>(routing_numbers(spec.experts)));
  const Values all = values_of(logits);
  const auto experts = static_cast<std::size_t>(spec.experts);
  for (std::size_t t = 0; t < kTokens; ++t) {
    double exponentials = 0;
    for (std::size_t e = 0; e < experts; ++e) exponentials += std::exp(all[t * experts + e]);
    for (std::size_t e = 0; e < experts; ++e) {
      const double p = std::exp(all[t * experts + e]) / exponentials;
      wanted[experts + e] += 2 * p;
      wanted[2 * experts + 1] -= 2 * p * std::log(p);
    }
    wanted[2 * experts + 2] += 2 * std::log(exponentials) * std::log(exponentials);
  }
  wanted[2 * experts] = 2 * kTokens;
  for (std::size_t e = 0; e < experts; ++e) {
    wanted[e] = 2.0 * (offsets[e + 1] - offsets[e]);
    wanted[2 * experts + 3] += 2.0 * (wanted[e] / 2) * (wanted[experts + e] / 2) *
                               static_cast<double>(spec.experts) / kTokens;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(sums.data<double>()[i], wanted[i], 1e-5 * (1 + wanted[i])) << i;
}

TEST(Routing, GatherCombineAndWeighMatchReference) {
  const Stream stream = cpu_stream();
  constexpr std::int64_t kColumns = 9;
  for (const DType dtype : kRealTypes) {
    const RoutingSpec spec = spec_of(RoutingRule::kSoftmax);
    const Routing routing =
        routed(random_tensor({kTokens, spec.experts}, DType::kF32, 8, stream), spec, stream);
    const Shape of_rows{kTokens * spec.chosen, kColumns};
    const Tensor x = random_tensor({kTokens, kColumns}, dtype, 9, stream),
                 rows = Tensor::empty(of_rows, dtype, MemoryKind::kActivations, stream),
                 y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    gather_tokens(rows, x, routing, stream);
    combine_rows(y, rows, routing.weights, x, routing, stream);
    const Values from = values_of(x), weights = values_of(routing.weights);
    Values wanted = from;
    for (std::int64_t pair = 0; pair < kTokens * spec.chosen; ++pair)
      for (std::int64_t c = 0; c < kColumns; ++c)
        wanted[static_cast<std::size_t>(pair / spec.chosen * kColumns + c)] +=
            weights[static_cast<std::size_t>(pair)] *
            from[static_cast<std::size_t>(pair / spec.chosen * kColumns + c)];
    expect_close(y, wanted, tolerance_of(dtype));

    const Tensor drows = random_tensor(of_rows, dtype, 10, stream),
                 more = random_tensor({kTokens * spec.chosen}, DType::kF32, 11, stream),
                 dweights = Tensor::empty({kTokens, spec.chosen}, DType::kF32,
                                          MemoryKind::kActivations, stream);
    Values sums(static_cast<std::size_t>(dweights.elements())), weighed = values_of(drows);
    const Values gathered = values_of(rows);
    const auto pairs = ids_of(routing.pairs);
    for (std::size_t row = 0; row < pairs.size(); ++row) {
      sums[static_cast<std::size_t>(pairs[row])] = values_of(more)[row];
      for (std::size_t c = 0; c < kColumns; ++c) {
        const std::size_t at = row * kColumns + c, pair = static_cast<std::size_t>(pairs[row]);
        sums[pair] += gathered[at] * weighed[at];
        weighed[at] *= weights[pair];
      }
    }
    weigh_rows(dweights, more, rows, drows, routing, stream);
    expect_close(dweights, sums, 1e-5);
    expect_close(drows, weighed, tolerance_of(dtype));
  }
}

TEST(Routing, RefusesMoreChosenThanExperts) {
  const Stream stream = cpu_stream();
  const RoutingSpec spec{.experts = 2, .chosen = 3};
  const Routing routing = Routing::empty(1, spec, stream);
  const Tensor logits = random_tensor({1, 2}, DType::kF32, 1, stream);
  EXPECT_THROW(route(routing, logits, {}, spec, stream), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
