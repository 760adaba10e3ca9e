/* loss.cu - cross entropy and its gradient. The logits are read once for the loss: a running maximum and the sum of exp
 * below it for each thread, joined at the end (Milakov, Gimelshein 2018); and once for the gradient, which knows their
 * largest and the sum of exp below it. A target that is no class is refused (refusal.h); its row gets NaN. */
#include "../../common/rows.cuh"
#include "loss_args.h"

#define GM_HELD GM_LOSS_PACKS
#define GM_BODY "../ops/loss/loss_t.cuh"
#include "../../common/each_dtype.cuh"
