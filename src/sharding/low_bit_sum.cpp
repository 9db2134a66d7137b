#include "src/sharding/low_bit_sum.h"

#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/four_bit.h"
#include "hybrid_trainer/kernels/quantization.h"

namespace hybrid_trainer {
namespace {

constexpr auto kSignedMap = kernels::QuantizationMap::kSigned;

Tensor workspace(std::int64_t elements, DType dtype, const Stream& stream) {
  return Tensor::empty({elements}, dtype, MemoryKind::kWorkspace, stream);
}

/// rounded = values, whose rounding errors are written to `errors`.
void round_to(const LowBitNumbers& rounded, const Tensor& values, const Tensor& errors,
              const Stream& stream) {
  rounded.write(values, stream);
  rounded.read(errors, stream);
  kernels::axpy(errors, errors, -1, values, stream);
}

std::vector<std::int64_t> same_for_all(const Communicator& ranks, std::int64_t count) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(ranks.size()), count);
}

}  // namespace

std::int64_t LowBitNumbers::block(std::int64_t bits) {
  return bits == 8 ? kernels::kQuantizationBlock : kernels::kFourBitBlock;
}

LowBitNumbers::LowBitNumbers(std::int64_t elements, std::int64_t bits, const Stream& stream)
    : bits_(bits),
      codes_(workspace(elements * bits / 8, DType::kU8, stream)),
      scales_(workspace(elements / block(bits), DType::kF32, stream)) {
  require((bits == 8 || bits == 4) && elements % block(bits) == 0,
          "numbers in few bits are 8 or 4 bits and whole blocks");
}

void LowBitNumbers::write(const Tensor& values, const Stream& stream) const {
  if (bits_ == 8) return kernels::quantize(codes_, scales_, values, kSignedMap, stream);
  kernels::quantize_four_bit({codes_, {}, scales_}, values, stream);
}

void LowBitNumbers::read(const Tensor& values, const Stream& stream) const {
  if (bits_ == 8) return kernels::dequantize(values, codes_, scales_, kSignedMap, stream);
  kernels::dequantize_four_bit(values, {codes_, {}, scales_}, stream);
}

LowBitNumbers LowBitNumbers::part(std::int64_t first, std::int64_t last) const {
  return {bits_, codes_.rows(first * bits_ / 8, last * bits_ / 8),
          scales_.rows(first / block(bits_), last / block(bits_))};
}

LowBitErrors::LowBitErrors(std::int64_t elements, std::int64_t bits, const Communicator& ranks,
                           const Stream& stream)
    : bits(bits) {
  const std::int64_t most = shard_of(elements, 0, ranks.size()).elements();
  const std::int64_t block = LowBitNumbers::block(bits);
  const std::int64_t shard = (most + block - 1) / block * block;
  const auto zeros = [&](std::int64_t count) {
    return Tensor::zeros({count}, DType::kF32, MemoryKind::kPredictor, stream);
  };
  of_message = zeros(shard * ranks.size());
  of_sum = zeros(shard);
}

LowBitSum::LowBitSum(Tensor total, LowBitErrors errors, const Communicator& ranks,
                     const Stream& stream)
    : total_(std::move(total)),
      errors_(std::move(errors)),
      shard_(errors_.of_sum.elements()),
      sent_(shard_ * ranks.size(), errors_.bits, stream),
      received_(shard_ * ranks.size(), errors_.bits, stream),
      other_(workspace(shard_, DType::kF32, stream)),
      code_counts_(same_for_all(ranks, shard_ * errors_.bits / 8)),
      scale_counts_(same_for_all(ranks, shard_ / LowBitNumbers::block(errors_.bits))) {}

void LowBitSum::run(Communicator& ranks, const Stream& stream) {
  round_to(sent_, total_, errors_.of_message, stream);
  ranks.all_to_all(received_.codes(), code_counts_, sent_.codes(), code_counts_, stream);
  ranks.all_to_all(received_.scales(), scale_counts_, sent_.scales(), scale_counts_, stream);
  const std::int64_t first = ranks.rank() * shard_;
  const Tensor own = total_.rows(first, first + shard_);
  received_.part(0, shard_).read(own, stream);
  for (int rank = 1; rank < ranks.size(); ++rank) {
    received_.part(rank * shard_, (rank + 1) * shard_).read(other_, stream);
    kernels::add(own, own, other_, stream);
  }
  kernels::axpy(own, own, -1, errors_.of_sum, stream);
  const LowBitNumbers mine = sent_.part(first, first + shard_);
  round_to(mine, own, errors_.of_sum, stream);
  ranks.all_gather(sent_.codes(), mine.codes(), stream);
  ranks.all_gather(sent_.scales(), mine.scales(), stream);
  sent_.read(total_, stream);
}

}  // namespace hybrid_trainer
