#include "src/sharding/late_sum.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {

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
        kernels::sum_of_squares(squares, own, sums, here);
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

/// What each rank has is a leaf of the sum.
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
