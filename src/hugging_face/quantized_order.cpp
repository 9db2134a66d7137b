#include "src/hugging_face/quantized_order.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using kernels::BlockTensors, kernels::EightBitTensors, kernels::FourBitTensors,
    kernels::MicroScalingTensors;

constexpr std::int64_t kFourBitRowBlock = kernels::kFourBitBlock;

/// Each block's magnitude, made as dequantize_four_bit makes it.
Tensor plain_magnitudes(const FourBitTensors& from, const Stream& host) {
  const Tensor scales = wait_for_host(from.scales, host);
  if (!from.levels.defined()) return scales;
  const Tensor levels = wait_for_host(from.levels, host),
               all = Tensor::empty({levels.elements()}, DType::kF32, MemoryKind::kWorkspace, host);
  for (std::int64_t i = 0; i < all.elements(); ++i) {
    const float product = kernels::kFourBitLevels[levels.data<std::uint8_t>()[i]] *
                          scales.data<float>()[i / kernels::kFourBitLevelBlock];
    all.data<float>()[i] = product + from.offset;
  }
  return all;
}

/// A flat tensor's rows in the other order.
Tensor moved_rows(const Tensor& flat, std::int64_t rows, const RowGroups& order, RowsTo side,
                  const Stream& home) {
  const Stream host(MemoryPool::create("host"));
  const Tensor matrix = wait_for_host(flat, home).view({rows, flat.elements() / rows});
  const Tensor moved = reordered(matrix, order, side);
  const Tensor to = Tensor::empty(flat.shape(), flat.dtype(), MemoryKind::kParameters, home);
  if (!home.device().simulated) wait_for_copy(to, moved.view(flat.shape()), home);
  return to;
}

}  // namespace

QuantizedRows reordered(const QuantizedRows& from, std::int64_t columns, const RowGroups& order,
                        RowsTo side, const std::string& name, const Stream& home) {
  if (order.are_alike()) return from;
  const auto move = [&](const Tensor& flat) {
    return moved_rows(flat, from.rows, order, side, home);
  };
  if (const auto* eight = std::get_if<EightBitTensors>(&from.tensors))
    return {from.rows, EightBitTensors{move(eight->codes), move(eight->magnitudes)}};
  if (const auto* micro = std::get_if<MicroScalingTensors>(&from.tensors))
    return {from.rows, MicroScalingTensors{move(micro->codes), move(micro->exponents)}};
  if (const auto* blocks = std::get_if<BlockTensors>(&from.tensors))
    return {from.rows, BlockTensors{move(blocks->bytes), blocks->format}};
  const auto& four = std::get<FourBitTensors>(from.tensors);
  if (columns % kFourBitRowBlock != 0) {
    const char* const way_out = side == RowsTo::kHere
                                    ? "give the folder that it was quantized from"
                                    : "quantize to int8, in which each row is by itself";
    throw DataError(concat(name, ": its 4-bit codes have blocks of ", kFourBitRowBlock,
                           " numbers, which its rows of ", columns,
                           " cut, and the rows have another order in the files; ", way_out));
  }
  return {from.rows, FourBitTensors{.codes = move(four.codes),
                                    .levels = {},
                                    .scales = move(plain_magnitudes(four, home)),
                                    .offset = 0,
                                    .type = four.type}};
}

}  // namespace hybrid_trainer
