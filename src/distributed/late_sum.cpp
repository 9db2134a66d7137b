#include "src/distributed/late_sum.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/quantized/quantization.h"

namespace hybrid_trainer {

namespace {

constexpr auto kSignedMap = kernels::QuantizationMap::kSigned;

Tensor workspace(std::int64_t elements, DType dtype, const Stream& stream) {
  return Tensor::empty({elements}, dtype, MemoryKind::kWorkspace, stream);
}

/// Rounds values and writes the rounding errors to `errors`.
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

LateSum::LateSum(const Tensor& mine, const std::vector<double>& words, Communicator& ranks,
                 const Stream& stream)
    : ranks_(&ranks), stream_(&stream), total_(mine) {
  take_words(words);
  take_pieces({{{0, mine.elements()}, equal_shards(mine.elements(), ranks.size())}});
  ticket_ = ranks.begin(
      [piece = pieces_.front(), total = total_, words = words_, own_words = words_of_rank()](
          Communicator& all, const Stream& here) {
        if (words) all.all_gather(words, own_words, here);
        piece.reduction->run(piece.own, all, here);
        all.all_gather(total, piece.own, here);
      },
      stream);
}

LateSum::LateSum(const Tensor& mine, const std::vector<SharedElements>& shared,
                 const std::vector<double>& words, Communicator& ranks, const Stream& stream)
    : ranks_(&ranks), stream_(&stream), total_(mine) {
  take_words(words);
  take_pieces(shared);
  std::vector<Tensor> own;
  for (const Piece& piece : pieces_) own.push_back(piece.own);
  const Tensor own_words = words_of_rank(),
               squares = own_words.rows(own_words.elements() - 1, own_words.elements());
  std::int64_t chunks = 0;
  for (const Tensor& part : own) chunks += kernels::dot_chunks(part.elements());
  square_sums_ = Tensor::empty({chunks}, DType::kF64, MemoryKind::kWorkspace, stream);
  ticket_ = ranks.begin(
      [pieces = pieces_, own = std::move(own), words = words_, own_words, squares,
       sums = square_sums_](Communicator& all, const Stream& here) {
        for (const Piece& piece : pieces) piece.reduction->run(piece.own, all, here);
        kernels::dot(squares, own, own, sums, here);
        all.all_gather(words, own_words, here);
      },
      stream);
}

LateSum::LateSum(const Tensor& mine, const LowBitErrors& errors, const std::vector<double>& words,
                 Communicator& ranks, const Stream& stream)
    : ranks_(&ranks), stream_(&stream), total_(mine) {
  take_words(words);
  low_bits_ = std::make_shared<LowBitSum>(total_, errors, ranks, stream);
  ticket_ = ranks.begin(
      [sum = low_bits_, words = words_, own_words = words_of_rank()](Communicator& all,
                                                                     const Stream& here) {
        all.all_gather(words, own_words, here);
        sum->run(all, here);
      },
      stream);
}

void LateSum::take_words(const std::vector<double>& words) {
  if (words.empty()) return;
  words_ = Tensor::zeros({ranks_->size(), static_cast<std::int64_t>(words.size()) + 1}, DType::kF64,
                         MemoryKind::kGradients, *stream_);
  const auto count = static_cast<std::int64_t>(words.size());
  const Tensor told = Tensor::empty({count}, DType::kF64, MemoryKind::kWorkspace,
                                    Stream(MemoryPool::create("host")));
  std::copy(words.begin(), words.end(), told.data<double>());
  wait_for_copy(words_of_rank().rows(0, count), told, *stream_);
}

/// Each rank's values are one leaf of the sum.
void LateSum::take_pieces(const std::vector<SharedElements>& shared) {
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

Tensor LateSum::words_of_rank() const {
  if (!words_) return {};
  const std::int64_t count = words_.shape()[1];
  return words_.view({words_.elements()})
      .rows(ranks_->rank() * count, (ranks_->rank() + 1) * count);
}

Tensor LateSum::wait() {
  if (total_) {
    ranks_->wait_for(ticket_, *stream_);
    if (words_) words_ = wait_for_host(words_, *stream_);
  }
  pieces_.clear();
  square_sums_ = {};
  low_bits_.reset();
  return std::exchange(total_, {});
}

double LateSum::sum_of(std::size_t word) const {
  const auto count = static_cast<std::size_t>(words_.shape()[1]);
  double sum = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(words_.shape()[0]); ++rank)
    sum += words_.data<double>()[rank * count + word];
  return sum;
}

double LateSum::sum_of_squares() const {
  return sum_of(static_cast<std::size_t>(words_.shape()[1]) - 1);
}

}  // namespace hybrid_trainer
