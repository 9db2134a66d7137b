#include "src/trainer/sharding/weight_parts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "src/distributed/decorated_communicator.h"
#include "src/distributed/host_ranks.h"
#include "tests/trainer/sharding/some_weights.h"

namespace hybrid_trainer {
namespace {

/// Sharded weights in several groups, most of which take several rounds.
struct SharedWeights {
  SharedWeights(Communicator& ranks, bool background)
      : parts(weights.weights, optimizer_named("adamw"), ranks,
              {.background = background, .bucket_bytes = 4096 * 3}, weights.stream) {}
  /// Updates the own shards like an optimizer, to values that identify the rank and time.
  void change_own_parts(float time) {
    for (Parameter* part : parts.parameters()) {
      if (part->elements() == 0) continue;
      const Weight own = part->acquire_master(weights.stream, Use::kChange);
      float* const values = own.tensor().data<float>();
      std::fill_n(values, part->elements(), value_of(parts.ranks().rank(), time));
    }
    parts.masters_changed(weights.stream);
  }
  static float value_of(int rank, float time) { return time + static_cast<float>(rank) / 8; }
  void expect_whole(std::size_t weight, float time) {
    const Weight master = weights.weights[weight]->acquire_master(weights.stream);
    for (int rank = 0; rank < parts.ranks().size(); ++rank) {
      const Shard part = parts.of(weight, rank);
      for (std::int64_t i = part.first; i < part.last; ++i)
        ASSERT_EQ(master.tensor().data<float>()[i], value_of(rank, time)) << weight << ' ' << i;
    }
  }

  SomeWeights weights;
  WeightParts parts;
};

TEST(WeightArrivals, AllRanksReceiveEveryPart) {
  for (const bool background : {true, false}) {
    run_thread_ranks(3, [&](Communicator& others) {
      BackgroundCommunicator ranks(others, background);
      SharedWeights shared(ranks, background);
      ASSERT_GT(shared.parts.groups().size(), 2u);
      for (const float time : {1.0f, 2.0f, 3.0f}) {
        shared.change_own_parts(time);
        if (time == 2) shared.parts.send_changes();
        for (const std::size_t i : {2u, 0u, 1u, 3u}) shared.expect_whole(i, time);
      }
    });
  }
}

/// A compute copy is remade from the received values before it is used.
TEST(WeightArrivals, RefreshesComputeCopies) {
  run_thread_ranks(2, [&](Communicator& others) {
    BackgroundCommunicator ranks(others, true);
    SharedWeights shared(ranks, true);
    Parameter& table = *shared.weights.weights.front();
    table.compute_in(DType::kBF16, shared.weights.stream);
    shared.change_own_parts(5);
    shared.parts.send_changes();
    const Weight copy = table.acquire(DType::kBF16, shared.weights.stream);
    for (int rank = 0; rank < 2; ++rank) {
      const Shard part = shared.parts.of(0, rank);
      ASSERT_GT(part.elements(), 0);
      const float value = SharedWeights::value_of(rank, 5);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      EXPECT_EQ(static_cast<const std::uint16_t*>(copy.tensor().raw())[part.first], bits >> 16);
    }
  });
}

/// Rank 1 sends only after rank 0 has continued.
TEST(WeightArrivals, RankWaitsOnlyWhenItUsesWeight) {
  std::atomic<bool> went_on = false;
  run_thread_ranks(2, [&](Communicator& others) {
    BackgroundCommunicator ranks(others, true);
    SharedWeights shared(ranks, true);
    shared.change_own_parts(1);
    for (int i = 0; i < 10000 && ranks.rank() == 1 && !went_on; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(ranks.rank() == 0 || went_on);
    shared.parts.send_changes();
    went_on = true;
    shared.expect_whole(0, 1);
  });
}

/// Unchanged weights are not sent, and using the own shard needs no communication.
TEST(WeightArrivals, SendsNothingWithoutChange) {
  run_thread_ranks(2, [&](Communicator& others) {
    BackgroundCommunicator ranks(others, true);
    SharedWeights shared(ranks, true);
    ranks.barrier();
    const std::uint64_t before = ranks.use().calls;
    shared.parts.send_changes();
    for (Parameter* weight : shared.weights.weights) weight->master_in_place();
    shared.change_own_parts(1);
    for (Parameter* part : shared.parts.parameters()) part->master_in_place();
    EXPECT_EQ(ranks.use().calls, before);
    shared.parts.send_changes();
    ranks.barrier();
    EXPECT_GT(ranks.use().calls, before + 1);
  });
}

/// A shard in flight must not change: uses a slow link and no complete weights in between.
TEST(WeightArrivals, LaterChangeDoesNotAlterPartInFlight) {
  run_thread_ranks(2, [&](Communicator& others) {
    SimulatedLink link(others, {.latency = std::chrono::milliseconds(2)});
    BackgroundCommunicator ranks(link, true);
    SharedWeights shared(ranks, true);
    shared.change_own_parts(1);
    shared.parts.send_changes();
    for (Parameter* part : shared.parts.parameters()) {
      if (part->elements() == 0) continue;
      const Weight own = part->acquire_master(shared.weights.stream, Use::kChange);
      std::fill_n(own.tensor().data<float>(), part->elements(),
                  SharedWeights::value_of(ranks.rank(), 2));
    }
    ranks.barrier();
    for (std::size_t i = 0; i < shared.weights.weights.size(); ++i) {
      const Tensor master = shared.weights.weights[i]->master_in_place();
      const int other = 1 - ranks.rank();
      const Shard theirs = shared.parts.of(i, other);
      for (std::int64_t k = theirs.first; k < theirs.last; ++k)
        ASSERT_EQ(master.data<float>()[k], SharedWeights::value_of(other, 1)) << i << ' ' << k;
    }
  });
}

class ModelAfterArrivals {
 public:
  void train_and_end(Communicator& ranks, bool by_an_error) {
    for (Parameter* weight : weights_.weights) weight->compute_in(DType::kBF16, weights_.stream);
    try {
      WeightParts parts(weights_.weights, optimizer_named("adamw"), ranks,
                        {.background = true, .bucket_bytes = 4096 * 3}, weights_.stream);
      for (Parameter* part : parts.parameters())
        fill_zero(part->acquire_master(weights_.stream, Use::kWrite), weights_.stream);
      parts.masters_changed(weights_.stream);
      parts.send_changes();
      if (by_an_error) throw UsageError("ended");
    } catch (const UsageError&) {
    }
  }
  void expect_zeros() const {
    for (const Parameter* weight : weights_.weights) {
      const Weight master = weight->acquire_master(weights_.stream);
      for (std::int64_t i = 0; i < weight->elements(); ++i)
        ASSERT_EQ(master.tensor().data<float>()[i], 0) << weight->name();
      if (weight->role() == Role::kVector) continue;
      const Weight copy = weight->acquire(DType::kBF16, weights_.stream);
      for (std::int64_t i = 0; i < weight->elements(); ++i)
        ASSERT_EQ(static_cast<const std::uint16_t*>(copy.tensor().raw())[i], 0) << weight->name();
    }
  }
  /// Checks that the weights no longer depend on arrivals.
  void use() const {
    for (Parameter* weight : weights_.weights) {
      const Weight master = weight->acquire_master(weights_.stream);
      EXPECT_EQ(master.tensor().raw(), weight->master_in_place().raw());
    }
  }

 private:
  SomeWeights weights_;
};

TEST(WeightArrivals, ModelIsCompleteAfterEnd) {
  run_thread_ranks(2, [&](Communicator& others) {
    BackgroundCommunicator ranks(others, true);
    ModelAfterArrivals model;
    model.train_and_end(ranks, false);
    model.expect_zeros();
  });
}

TEST(WeightArrivals, ModelRemainsUsableAfterError) {
  run_thread_ranks(2, [&](Communicator& others) {
    BackgroundCommunicator ranks(others, true);
    ModelAfterArrivals model;
    model.train_and_end(ranks, true);
    model.use();
    ranks.barrier();
  });
}

}  // namespace
}  // namespace hybrid_trainer
