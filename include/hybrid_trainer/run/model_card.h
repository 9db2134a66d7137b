#pragma once

// Where these declarations were before; it stays so that programs compile.
#include "hybrid_trainer/run_folder/model_card.h"
