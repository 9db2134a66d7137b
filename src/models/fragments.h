#pragma once

#include "hybrid_trainer/nn/graph_part.h"

namespace hybrid_trainer {

/// Cuts videos (B, T, H, W, C) into fragments of `frames` frames, which its module sees as videos of their
/// own. What that makes of them, (B·T/frames, …, D), becomes the tokens (B, N, D) of the video. `frames`
/// divides T.
graph::ModuleMaker fragments(std::int64_t frames, graph::ModuleMaker module);

}  // namespace hybrid_trainer
