#pragma once

// Where these declarations were before; it stays so that programs compile.
#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/config/presets.h"
