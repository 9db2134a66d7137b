#include "src/optim/optimizer_state.h"

#include <gtest/gtest.h>

#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kElements = 16384;
constexpr std::size_t kPage = kElements * sizeof(float);
constexpr std::size_t kRounded = kPage + 4096;  // size of a page with its overhead

class StatePagesTest : public ::testing::Test {
 protected:
  Tensor state(float value) const {
    const Tensor made = Tensor::zeros({kElements}, DType::kF32, MemoryKind::kOptimizerState, home_);
    std::fill_n(made.data<float>(), kElements, value);
    return made;
  }
  Tensor other_use(std::size_t bytes) const {
    return Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::kU8, MemoryKind::kActivations,
                         device_);
  }
  /// Updates all states once. Returns for each whether it has a page.
  std::vector<bool> update(StatePages& pages, const std::vector<Tensor>& states,
                           Use use = Use::kChange) const {
    std::vector<bool> stays;
    pages.begin_update(device_);
    for (const Tensor& state : states)
      stays.push_back(pages.page_of(state, use, device_).defined());
    pages.end_update(*device_.pool());
    return stays;
  }
  std::size_t live() const { return device_.pool()->use().live_total; }
  const Stream device_ = test_stream(), home_ = test_stream();
};

TEST_F(StatePagesTest, KeepsPagesFromSecondUpdate) {
  StatePages pages(10 * kRounded);
  const Tensor one = state(3);
  EXPECT_EQ(update(pages, {one}), std::vector<bool>{false}) << "a step's memory is not known yet";
  EXPECT_EQ(update(pages, {one}), std::vector<bool>{true});
  pages.begin_update(device_);
  const Tensor here = pages.page_of(one, Use::kRead, device_);
  EXPECT_EQ(here.data<float>()[kElements - 1], 3);
  pages.end_update(*device_.pool());
  pages.begin_update(device_);
  EXPECT_EQ(pages.page_of(one, Use::kRead, device_).raw(), here.raw());
  EXPECT_EQ(live(), kPage);
  EXPECT_FALSE(pages.page_of({}, Use::kRead, device_).defined());
}

TEST_F(StatePagesTest, UsesRoomAbovePeakOfStep) {
  StatePages pages(2 * kRounded + 4 * kPage);
  const std::vector<Tensor> states{state(0), state(0), state(0)};
  other_use(3 * kPage);  // and is freed again
  update(pages, states);
  other_use(4 * kPage);
  const std::vector<bool> wanted{true, true, false};
  EXPECT_EQ(update(pages, states), wanted);
  EXPECT_EQ(update(pages, states), wanted) << "the first ones keep their pages";
}

TEST_F(StatePagesTest, WritesBackOnlyChangedPages) {
  StatePages pages(10 * kRounded);
  const std::vector<Tensor> states{state(1), state(2), state(3)};
  update(pages, states);
  pages.begin_update(device_);
  const Use uses[] = {Use::kRead, Use::kChange, Use::kWrite};
  for (std::size_t i = 0; i < 3; ++i) {
    const Tensor page = pages.page_of(states[i], uses[i], device_);
    std::fill_n(page.data<float>(), kElements, 9.0f);
    pages.page_of(states[i], Use::kRead, device_);  // changes nothing
  }
  EXPECT_EQ(states[1].data<float>()[0], 2);
  EXPECT_TRUE(pages.leave(device_));
  EXPECT_EQ(states[0].data<float>()[0], 1);
  EXPECT_EQ(states[1].data<float>()[0], 9);
  EXPECT_EQ(states[2].data<float>()[0], 9);
  EXPECT_EQ(live(), 0u);
  EXPECT_FALSE(pages.leave(device_)) << "no page is left";
  EXPECT_FALSE(pages.page_of(states[0], Use::kRead, device_).defined());
  EXPECT_EQ(update(pages, {states[0]}), std::vector<bool>{false});
  EXPECT_EQ(update(pages, {states[0]}), std::vector<bool>{true});
}

TEST_F(StatePagesTest, ReleasesPagesWhenOtherMemoryGrows) {
  constexpr std::size_t kStep = 2 * kPage, kBudget = kStep + 2 * kRounded;
  for (const bool grows : {false, true}) {
    const Stream device = test_stream();
    StatePages pages(kBudget);
    const Tensor one = state(1);
    pages.begin_update(device);
    Tensor::empty({kStep}, DType::kU8, MemoryKind::kActivations, device);
    pages.end_update(*device.pool());
    pages.begin_update(device);
    std::fill_n(pages.page_of(one, Use::kChange, device).data<float>(), kElements, 5.0f);
    pages.end_update(*device.pool());
    // The peak of a step is allocated again in the middle of the step.
    const std::size_t more = kBudget - kStep - kPage + (grows ? 4096 : 0);
    const Tensor grown = Tensor::empty({static_cast<std::int64_t>(more)}, DType::kU8,
                                       MemoryKind::kActivations, device);
    pages.begin_update(device);
    EXPECT_EQ(one.data<float>()[0], grows ? 5 : 1);
    EXPECT_EQ(device.pool()->use().live_total, grown.bytes() + (grows ? 0 : kPage));
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
