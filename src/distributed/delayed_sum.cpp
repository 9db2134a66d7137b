#include "src/distributed/delayed_sum.h"

#include <algorithm>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/quantized/quantization.h"

namespace hybrid_trainer {

namespace {

constexpr auto kSignedMap = kernels::QuantizationMap::kSigned;

Tensor workspace(std::int64_t elements, DType dtype, const Stream& stream) {
  return Tensor::empty({elements}, dtype, MemoryKind::kWorkspace, stream);
}

void round_to(const QuantizedValues& rounded, const Tensor& values, const Tensor& errors,
              const Stream& stream) {
  rounded.write(values, stream);
  rounded.read(errors, stream);
  kernels::axpy(errors, errors, -1, values, stream);
}

std::vector<std::int64_t> equal_counts(const Communicator& ranks, std::int64_t count) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(ranks.size()), count);
}

}  // namespace

std::int64_t QuantizedValues::block(std::int64_t bits) {
  return bits == 8 ? kernels::kQuantizationBlock : kernels::kFourBitBlock;
}

QuantizedValues::QuantizedValues(std::int64_t elements, std::int64_t bits, const Stream& stream)
    : bits_(bits),
      codes_(workspace(elements * bits / 8, DType::kU8, stream)),
      scales_(workspace(elements / block(bits), DType::kF32, stream)) {
  require((bits == 8 || bits == 4) && elements % block(bits) == 0,
          "quantized values need 8 or 4 bits and whole blocks");
}

void QuantizedValues::write(const Tensor& values, const Stream& stream) const {
  if (bits_ == 8) return kernels::quantize(codes_, scales_, values, kSignedMap, stream);
  kernels::quantize_four_bit({codes_, {}, scales_}, values, stream);
}

void QuantizedValues::read(const Tensor& values, const Stream& stream) const {
  if (bits_ == 8) return kernels::dequantize(values, codes_, scales_, kSignedMap, stream);
  kernels::dequantize_four_bit(values, {codes_, {}, scales_}, stream);
}

QuantizedValues QuantizedValues::part(std::int64_t first, std::int64_t last) const {
  return {bits_, codes_.rows(first * bits_ / 8, last * bits_ / 8),
          scales_.rows(first / block(bits_), last / block(bits_))};
}

QuantizationErrors::QuantizationErrors(std::int64_t elements, std::int64_t bits,
                                       const Communicator& ranks, const Stream& stream)
    : bits(bits) {
  const std::int64_t most = shard_of(elements, 0, ranks.size()).elements();
  const std::int64_t block = QuantizedValues::block(bits);
  const std::int64_t shard = (most + block - 1) / block * block;
  const auto zeros = [&](std::int64_t count) {
    return Tensor::zeros({count}, DType::kF32, MemoryKind::kPredictor, stream);
  };
  message_error = zeros(shard * ranks.size());
  sum_error = zeros(shard);
}

QuantizedSum::QuantizedSum(Tensor total, QuantizationErrors errors, const Communicator& ranks,
                           const Stream& stream)
    : total_(std::move(total)),
      errors_(std::move(errors)),
      shard_(errors_.sum_error.elements()),
      sent_(shard_ * ranks.size(), errors_.bits, stream),
      received_(shard_ * ranks.size(), errors_.bits, stream),
      other_(workspace(shard_, DType::kF32, stream)),
      code_counts_(equal_counts(ranks, shard_ * errors_.bits / 8)),
      scale_counts_(equal_counts(ranks, shard_ / QuantizedValues::block(errors_.bits))) {}

void QuantizedSum::run(Communicator& ranks, const Stream& stream) {
  round_to(sent_, total_, errors_.message_error, stream);
  ranks.all_to_all(received_.codes(), code_counts_, sent_.codes(), code_counts_, stream);
  ranks.all_to_all(received_.scales(), scale_counts_, sent_.scales(), scale_counts_, stream);
  const std::int64_t first = ranks.rank() * shard_;
  const Tensor own = total_.rows(first, first + shard_);
  received_.part(0, shard_).read(own, stream);
  for (int rank = 1; rank < ranks.size(); ++rank) {
    received_.part(rank * shard_, (rank + 1) * shard_).read(other_, stream);
    kernels::add(own, own, other_, stream);
  }
  kernels::axpy(own, own, -1, errors_.sum_error, stream);
  const QuantizedValues mine = sent_.part(first, first + shard_);
  round_to(mine, own, errors_.sum_error, stream);
  ranks.all_gather(sent_.codes(), mine.codes(), stream);
  ranks.all_gather(sent_.scales(), mine.scales(), stream);
  sent_.read(total_, stream);
}

DelayedSum::DelayedSum(const Tensor& mine, const std::vector<double>& scalars, Communicator& ranks,
                       const Stream& stream)
    : ranks_(&ranks), stream_(&stream), total_(mine) {
  take_scalars(scalars);
  take_pieces({{{0, mine.elements()}, equal_shards(mine.elements(), ranks.size())}});
  ticket_ = ranks.begin(
      [piece = pieces_.front(), total = total_, scalars = scalars_,
       own_scalars = scalars_of_rank()](Communicator& all, const Stream& here) {
        if (scalars) all.all_gather(scalars, own_scalars, here);
        piece.reduction->run(piece.own, all, here);
        all.all_gather(total, piece.own, here);
      },
      stream);
}

DelayedSum::DelayedSum(const Tensor& mine, const std::vector<SharedElements>& shared,
                       const std::vector<double>& scalars, Communicator& ranks,
                       const Stream& stream)
    : ranks_(&ranks), stream_(&stream), total_(mine) {
  take_scalars(scalars);
  take_pieces(shared);
  std::vector<Tensor> own;
  for (const Piece& piece : pieces_) own.push_back(piece.own);
  const Tensor own_scalars = scalars_of_rank(),
               squares = own_scalars.rows(own_scalars.elements() - 1, own_scalars.elements());
  std::int64_t chunks = 0;
  for (const Tensor& part : own) chunks += kernels::dot_chunks(part.elements());
  square_sums_ = Tensor::empty({chunks}, DType::kF64, MemoryKind::kWorkspace, stream);
  ticket_ = ranks.begin(
      [pieces = pieces_, own = std::move(own), scalars = scalars_, own_scalars, squares,
       sums = square_sums_](Communicator& all, const Stream& here) {
        for (const Piece& piece : pieces) piece.reduction->run(piece.own, all, here);
        kernels::dot(squares, own, own, sums, here);
        all.all_gather(scalars, own_scalars, here);
      },
      stream);
}

DelayedSum::DelayedSum(const Tensor& mine, const QuantizationErrors& errors,
                       const std::vector<double>& scalars, Communicator& ranks,
                       const Stream& stream)
    : ranks_(&ranks), stream_(&stream), total_(mine) {
  take_scalars(scalars);
  quantized_sum_ = std::make_shared<QuantizedSum>(total_, errors, ranks, stream);
  ticket_ = ranks.begin(
      [sum = quantized_sum_, scalars = scalars_, own_scalars = scalars_of_rank()](
          Communicator& all, const Stream& here) {
        all.all_gather(scalars, own_scalars, here);
        sum->run(all, here);
      },
      stream);
}

void DelayedSum::take_scalars(const std::vector<double>& scalars) {
  if (scalars.empty()) return;
  scalars_ = Tensor::zeros({ranks_->size(), static_cast<std::int64_t>(scalars.size()) + 1},
                           DType::kF64, MemoryKind::kGradients, *stream_);
  const auto count = static_cast<std::int64_t>(scalars.size());
  const Tensor host_scalars = Tensor::empty({count}, DType::kF64, MemoryKind::kWorkspace,
                                            Stream(MemoryPool::create("host")));
  std::copy(scalars.begin(), scalars.end(), host_scalars.data<double>());
  wait_for_copy(scalars_of_rank().rows(0, count), host_scalars, *stream_);
}

/// Prepares an OrderedReduction of each range of elements; each rank's values are one leaf.
void DelayedSum::take_pieces(const std::vector<SharedElements>& shared) {
  for (const auto& [elements, shards] : shared) {
    const Tensor all = total_.rows(elements.first, elements.last);
    const Shard part = shards[static_cast<std::size_t>(ranks_->rank())];
    OrderedSum leaf;
    leaf.add({0, ranks_->rank()}, all, *stream_);
    pieces_.push_back({std::make_shared<OrderedReduction>(shards, std::move(leaf), ranks_->size(),
                                                          *ranks_, *stream_),
                       all.rows(part.first, part.last)});
  }
}

Tensor DelayedSum::scalars_of_rank() const {
  if (!scalars_) return {};
  const std::int64_t count = scalars_.shape()[1];
  return scalars_.view({scalars_.elements()})
      .rows(ranks_->rank() * count, (ranks_->rank() + 1) * count);
}

Tensor DelayedSum::wait() {
  if (total_) {
    ranks_->wait_for(ticket_, *stream_);
    if (scalars_) scalars_ = wait_for_host(scalars_, *stream_);
  }
  pieces_.clear();
  square_sums_ = {};
  quantized_sum_.reset();
  return std::exchange(total_, {});
}

double DelayedSum::sum_of(std::size_t scalar) const {
  const auto count = static_cast<std::size_t>(scalars_.shape()[1]);
  double sum = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(scalars_.shape()[0]); ++rank)
    sum += scalars_.data<double>()[rank * count + scalar];
  return sum;
}

double DelayedSum::sum_of_squares() const {
  return sum_of(static_cast<std::size_t>(scalars_.shape()[1]) - 1);
}

}  // namespace hybrid_trainer
