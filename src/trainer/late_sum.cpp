#include "src/trainer/late_sum.h"

#include <algorithm>
#include <utility>

namespace hybrid_trainer {

/// What each rank has is a leaf of the sum.
LateSum::LateSum(Tensor mine, const std::vector<double>& words, Communicator& ranks,
                 const Stream& stream)
    : ranks_(&ranks), stream_(&stream), total_(std::move(mine)) {
  const auto count = static_cast<std::int64_t>(words.size());
  words_ = Tensor::zeros({ranks.size(), count}, DType::kF64, MemoryKind::kGradients, stream);
  if (!stream.device().simulated)
    std::copy(words.begin(), words.end(), words_.data<double>() + ranks.rank() * count);
  const Tensor flat = words_.view({words_.elements()});
  const Tensor own_words = flat.rows(ranks.rank() * count, (ranks.rank() + 1) * count);
  OrderedSum leaf;
  leaf.add({0, ranks.rank()}, total_, stream);
  std::vector<Shard> shards = equal_shards(total_.elements(), ranks.size());
  const Shard part = shards[static_cast<std::size_t>(ranks.rank())];
  const Tensor own = total_.rows(part.first, part.last);
  reduction_ = std::make_shared<OrderedReduction>(std::move(shards), std::move(leaf), ranks.size(),
                                                  ranks, stream);
  ticket_ = ranks.begin(
      [reduction = reduction_, total = total_, own, flat, own_words](Communicator& all,
                                                                     const Stream& here) {
        all.all_gather(flat, own_words, here);
        reduction->run(own, all, here);
        all.all_gather(total, own, here);
      },
      stream);
}

const Tensor& LateSum::wait() {
  if (reduction_) ranks_->wait_for(ticket_, *stream_);
  reduction_.reset();
  return total_;
}

double LateSum::sum_of(std::size_t word) const {
  if (stream_->device().simulated) return 0;
  const auto count = static_cast<std::size_t>(words_.shape()[1]);
  double sum = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(words_.shape()[0]); ++rank)
    sum += words_.data<double>()[rank * count + word];
  return sum;
}

}  // namespace hybrid_trainer
