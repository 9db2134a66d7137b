#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/kernels/scans.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

const StateSpaceSpec kCheckedStateSpace{.heads = 2, .head_size = 2, .groups = 1, .state_size = 4};
const DeltaRuleSpec kCheckedDeltaRule{
    .key_heads = 1, .value_heads = 2, .key_size = 4, .value_size = 2};
const Shape kCheckedState{2, 2, 2, 4}, kCheckedDeltaState{2, 2, 4, 2}, kCheckedHeads{2},
    kCheckedSteps{2, 4, 3}, kCheckedGates{2, 4, 5};

const std::vector<DeviceCase> kScanRows{
    {"causal_convolution_forward",
     {{"y", kCube},
      {"x", kWide},
      {"weight", {4, 3}},
      {"bias", kRow},
      {"before", {2, 2, 4}},
      {"positions", {2, 4}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       causal_convolution_forward(t[0], t[1], 4, t[2], t[3], t[4], t[5], {}, s);
     }},
    {"causal_convolution_backward",
     {{"dx", kWide},
      {"dweight", {4, 3}},
      {"dbias", kRow},
      {"dbefore", {2, 2, 4}},
      {"dy", kCube},
      {"x", kWide},
      {"weight", {4, 3}},
      {"bias", kRow},
      {"before", {2, 2, 4}},
      {"positions", {2, 4}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       causal_convolution_backward(t[0], t[1], t[2], kAdd, t[3], t[4], t[5], 4, t[6], t[7], t[8],
                                   t[9], {}, s);
     }},
    {"causal_convolution_step",
     {{"y", {1, 4}},
      {"state", {2, 2, 4}},
      {"x", {1, 12}},
      {"weight", {4, 3}},
      {"bias", kRow},
      {"texts", kOne, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       causal_convolution_step(t[0], t[1], t[2], 4, t[3], t[4], t[5], {}, s);
     }},
    {"gated_norm_forward",
     {{"y", kMatrix}, {"x", kMatrix}, {"gate", {4, 8}}, {"weight", kRow}},
     [](const Tensors& t, const Stream& s) {
       gated_norm_forward(t[0], t[1], t[2], 4, t[3], {}, s);
     }},
    {"gated_norm_backward",
     {{"dx", kMatrix},
      {"dgate", {4, 8}},
      {"dweight", kRow},
      {"dy", kMatrix},
      {"x", kMatrix},
      {"gate", {4, 8}},
      {"weight", kRow}},
     [](const Tensors& t, const Stream& s) {
       gated_norm_backward(t[0], t[1], t[2], kAdd, t[3], t[4], t[5], 4, t[6], {}, s);
     }},
};

const std::vector<DeviceCase> kScans{
    {"state_space_scan_forward",
     {{"y", kCube},
      {"last_state", kCheckedState},
      {"values", kWide},
      {"steps", kCheckedSteps},
      {"skip", kCheckedHeads},
      {"first_state", kCheckedState},
      {"positions", {2, 4}, DType::kI32},
      {"log_rate", kCheckedHeads},
      {"step_bias", kCheckedHeads}},
     [](const Tensors& t, const Stream& s) {
       state_space_scan_forward(t[0], t[1], {t[2], t[3], t[4], t[5], t[6]}, {t[7], t[8]},
                                kCheckedStateSpace, s);
     }},
    {"state_space_scan_backward",
     {{"dvalues", kWide},
      {"dsteps", kCheckedSteps},
      {"dskip", kCheckedHeads},
      {"dlog_rate", kCheckedHeads},
      {"dstep_bias", kCheckedHeads},
      {"dfirst_state", kCheckedState},
      {"dy", kCube},
      {"dlast_state", kCheckedState},
      {"values", kWide},
      {"steps", kCheckedSteps},
      {"log_rate", kCheckedHeads},
      {"step_bias", kCheckedHeads}},
     [](const Tensors& t, const Stream& s) {
       state_space_scan_backward({t[0], t[1], t[2], t[3], t[4], t[5], kAdd}, t[6], t[7],
                                 {t[8], t[9], {}, {}, {}}, {t[10], t[11]}, kCheckedStateSpace, s);
     }},
    {"state_space_scan_step",
     {{"y", {1, 4}},
      {"state", kCheckedState},
      {"values", {1, 12}},
      {"steps", {1, 3}},
      {"skip", kCheckedHeads},
      {"log_rate", kCheckedHeads},
      {"step_bias", kCheckedHeads},
      {"texts", kOne, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       state_space_scan_step(t[0], t[1], t[2], t[3], t[4], {t[5], t[6]}, t[7], kCheckedStateSpace,
                             s);
     }},
    {"delta_rule_scan_forward",
     {{"y", kCube},
      {"last_state", kCheckedDeltaState},
      {"qkv", kWide},
      {"gates", kCheckedGates},
      {"log_rate", kCheckedHeads},
      {"step_bias", kCheckedHeads},
      {"first_state", kCheckedDeltaState},
      {"positions", {2, 4}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       delta_rule_scan_forward(t[0], t[1], {t[2], t[3], t[4], t[5], t[6], t[7]}, kCheckedDeltaRule,
                               s);
     }},
    {"delta_rule_scan_backward",
     {{"gradients.qkv", kWide},
      {"gradients.gates", kCheckedGates},
      {"gradients.log_rate", kCheckedHeads},
      {"gradients.step_bias", kCheckedHeads},
      {"gradients.first_state", kCheckedDeltaState},
      {"dy", kCube},
      {"dlast_state", kCheckedDeltaState},
      {"qkv", kWide},
      {"gates", kCheckedGates},
      {"log_rate", kCheckedHeads},
      {"step_bias", kCheckedHeads}},
     [](const Tensors& t, const Stream& s) {
       delta_rule_scan_backward({t[0], t[1], t[2], t[3], t[4], kAdd}, t[5], t[6],
                                {t[7], t[8], t[9], t[10], {}, {}}, kCheckedDeltaRule, s);
     }},
    {"delta_rule_scan_step",
     {{"y", {1, 4}},
      {"state", kCheckedDeltaState},
      {"qkv", {1, 12}},
      {"gates", {1, 5}},
      {"log_rate", kCheckedHeads},
      {"step_bias", kCheckedHeads},
      {"texts", kOne, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       delta_rule_scan_step(t[0], t[1], t[2], t[3], t[4], t[5], t[6], kCheckedDeltaRule, s);
     }},
};

INSTANTIATE_TEST_SUITE_P(Scans, CheckDevice, ::testing::Values(&kScanRows, &kScans),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
