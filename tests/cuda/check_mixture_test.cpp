#include "hybrid_trainer/kernels/experts.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr RoutingSpec kTwoOfThree{.experts = 3, .chosen = 2, .rule = RoutingRule::kSigmoid};
const Shape kOfPairs{4, 2}, kOfExperts{4, 3}, kOfRows{8, 5}, kOfTokens{4, 5};

/// The arguments for the routing of four tokens, followed by `others`.
std::vector<Argument> after_routing(const std::vector<Argument>& others) {
  std::vector<Argument> all{{"experts", kOfPairs, DType::kI32},
                            {"weights", kOfPairs},
                            {"places", kOfPairs, DType::kI32},
                            {"pairs", {8}, DType::kI32},
                            {"offsets", {4}, DType::kI32}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}
Routing first_of(const Tensors& t) { return {t[0], t[1], t[2], t[3], t[4]}; }

const std::vector<DeviceCase> kRouting{
    {"route", after_routing({{"logits", kOfExperts}, {"selection_bias", {3}}}),
     [](const Tensors& t, const Stream& s) { route(first_of(t), t[5], t[6], kTwoOfThree, s); }},
    {"route_backward",
     after_routing({{"dlogits", kOfExperts}, {"logits", kOfExperts}, {"dweights", kOfPairs}}),
     [](const Tensors& t, const Stream& s) {
       route_backward(t[5], t[6], first_of(t), t[7], kTwoOfThree, {}, s);
     }},
    {"routing_statistics",
     after_routing({{"sums", {routing_numbers(3)}, DType::kF64}, {"logits", kOfExperts}}),
     [](const Tensors& t, const Stream& s) { routing_statistics(t[5], t[6], first_of(t), s); }},
    {"move_selection_bias",
     {{"bias", {3}}, {"counts", {2, 10}, DType::kF64}},
     [](const Tensors& t, const Stream& s) { move_selection_bias(t[0], t[1], 0.5f, s); }},
    {"routing_flips",
     after_routing({{"sums", {2}, DType::kF64}, {"before", kOfPairs, DType::kI32}}),
     [](const Tensors& t, const Stream& s) {
       routing_flips(t[5], first_of(t), {t[6], t[1], t[2], t[3], t[4]}, s);
     }},
    {"gather_tokens", after_routing({{"rows", kOfRows}, {"x", kOfTokens}}),
     [](const Tensors& t, const Stream& s) { gather_tokens(t[5], t[6], first_of(t), s); }},
    {"combine_rows", after_routing({{"y", kOfTokens}, {"rows", kOfRows}, {"residual", kOfTokens}}),
     [](const Tensors& t, const Stream& s) {
       combine_rows(t[5], t[6], t[1], t[7], first_of(t), s);
     }},
    {"weigh_rows", after_routing({{"dweights", kOfPairs}, {"rows", kOfRows}, {"drows", kOfRows}}),
     [](const Tensors& t, const Stream& s) { weigh_rows(t[5], {}, t[6], t[7], first_of(t), s); }},
};

const std::vector<DeviceCase> kGroupedProducts{
    {"grouped_forward",
     {{"y", {8, 2}}, {"x", kOfRows}, {"offsets", {2}, DType::kI32}, {"w", {2, 5}}, {"bias", {2}}},
     [](const Tensors& t, const Stream& s) {
       grouped_forward(t[0], t[1], {t[2]}, {&t[3], 1}, {&t[4], 1}, kAdd, s);
     }},
    {"grouped_backward_input",
     {{"dx", kOfRows}, {"dy", {8, 2}}, {"offsets", {2}, DType::kI32}, {"w", {2, 5}}},
     [](const Tensors& t, const Stream& s) {
       grouped_backward_input(t[0], t[1], {t[2]}, {&t[3], 1}, kAdd, s);
     }},
    {"grouped_backward_weight",
     {{"dw", {2, 5}}, {"dy", {8, 2}}, {"x", kOfRows}, {"offsets", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       grouped_backward_weight({&t[0], 1}, t[1], t[2], {t[3]}, kAdd, s);
     }},
    {"grouped_dots",
     {{"sums", {8}}, {"x", kOfRows}, {"offsets", {2}, DType::kI32}, {"vector", {5}}},
     [](const Tensors& t, const Stream& s) {
       grouped_dots(t[0], t[1], {t[2]}, {&t[3], 1}, s);
     }},
    {"grouped_bias_backward",
     {{"dbias", {2}}, {"dy", {8, 2}}, {"factors", {8}}, {"offsets", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       grouped_bias_backward({&t[0], 1}, t[1], t[2], {t[3]}, kAdd, s);
     }},
};

INSTANTIATE_TEST_SUITE_P(Mixtures, CheckDevice, ::testing::Values(&kRouting, &kGroupedProducts),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
