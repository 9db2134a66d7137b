#include "kernels/backend/dispatch.h"
#include "kernels/generated/structured.h"

namespace hybrid_trainer::kernels {

namespace {

void check_tap_columns(const KernelCall& call, const char* name, const Columns& columns,
                       std::int64_t rows, std::int64_t count, DType dtype) {
  check_rank(call, {name, columns.rows}, 2);
  check_shape(call, {name, columns.rows}, {rows, columns.rows.size(1)}, dtype);
  if (columns.first >= 0 && columns.first + count <= columns.rows.size(1)) return;
  throw_mismatch(call, name, " has the columns [", columns.first, ", ", columns.first + count,
                 "), but the number of columns is ", columns.rows.size(1));
}

void check_heads(const KernelCall& call, std::int64_t channels, const TokenTapsSpec& spec) {
  if (spec.heads >= 1 && channels % spec.heads == 0) return;
  throw_mismatch(call, channels, " channels are not a multiple of ", spec.heads, " heads");
}

void check_taps(const KernelCall& call, const NamedTensor& result, const TokenTapsInput& input,
                const TokenTapsSpec& spec) {
  check_real(call, result, 3);
  const Tensor& y = result.tensor;
  check_heads(call, y.size(2), spec);
  const std::int64_t rows = y.size(0) * y.size(1);
  check_tap_columns(call, "x", input.x, rows, y.size(2), y.dtype());
  check_tap_columns(call, "taps", input.taps, rows, spec.heads * spec.taps(), y.dtype());
  if (input.positions)
    check_shape(call, {"positions", input.positions}, {y.size(0), y.size(1)}, DType::kI32);
}

}  // namespace

void token_taps_forward(const Tensor& y, const TokenTapsInput& input, const TokenTapsSpec& spec,
                        const Stream& stream) {
  const KernelCall call{"token_taps_forward", stream, Work::kElementwise};
  check_taps(call, {"y", y}, input, spec);
  check_matching(call, {{"y", y}, {"low", input.low}});
  if (input.more) check_matching(call, {{"y", y}, {"more", input.more}});
  if (input.before)
    check_shape(call, {"before", input.before}, {y.size(0), 1, y.size(2)}, y.dtype());
  dispatch_with_workspace<cpu::token_taps_forward, cuda::token_taps_forward>(call, y, input, spec);
}

void token_taps_backward(const Tensor& dlow, const Columns& dx, const Columns& dtaps,
                         const Tensor& dy, const TokenTapsInput& input, const TokenTapsSpec& spec,
                         const Stream& stream) {
  const KernelCall call{"token_taps_backward", stream, Work::kElementwise};
  check_taps(call, {"dy", dy}, input, spec);
  if (input.before)
    throw Error(ExitCode::kInternal,
                "token_taps_backward: the gradient of x before a sequence is not supported");
  if (dlow) check_matching(call, {{"dy", dy}, {"dlow", dlow}});
  if (dx.rows || dtaps.rows) {
    const std::int64_t rows = dy.size(0) * dy.size(1);
    check_tap_columns(call, "dx", dx, rows, dy.size(2), dy.dtype());
    check_tap_columns(call, "dtaps", dtaps, rows, spec.heads * spec.taps(), dy.dtype());
  }
  dispatch_with_workspace<cpu::token_taps_backward, cuda::token_taps_backward>(
      call, dlow, dx, dtaps, dy, input, spec);
}

void token_taps_step(const Tensor& y, const Tensor& low, const Tensor& state, const Columns& x,
                     const Columns& taps, const Tensor& positions, const Tensor& texts,
                     const TokenTapsSpec& spec, const Stream& stream) {
  const KernelCall call{"token_taps_step", stream, Work::kElementwise};
  check_real(call, {"y", y}, 2);
  check_matching(call, {{"y", y}, {"low", low}});
  check_heads(call, y.size(1), spec);
  if (spec.ahead)
    throw Error(ExitCode::kInternal,
                "token_taps_step: taps of later tokens are not supported, because these tokens do "
                "not exist yet");
  check_rank(call, {"state", state}, 3);
  check_shape(call, {"state", state}, {state.size(0), 1, y.size(1)}, y.dtype());
  check_tap_columns(call, "x", x, y.size(0), y.size(1), y.dtype());
  check_tap_columns(call, "taps", taps, y.size(0), spec.heads * spec.taps(), y.dtype());
  check_shape(call, {"positions", positions}, {y.size(0)}, DType::kI32);
  check_shape(call, {"texts", texts}, {y.size(0)}, DType::kI32);
  dispatch<cpu::token_taps_step, cuda::token_taps_step>(call, y, low, state, x, taps, positions,
                                                        texts, spec);
}

}  // namespace hybrid_trainer::kernels
