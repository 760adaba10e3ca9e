--- Mutants of host/parallel/sharded/: products, norms, losses, attention and experts that are cut over ranks.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "136-norm-of-padding", file = "host/parallel/sharded/moments.c",
    find = [[n *= dims & 1u << d ? (double)logical[d] : 1;]],
    replace = [[n *= dims & 1u << d ? (double)local[d] : 1;]],
    breaks = "means of blocks of a row that is cut are merged as if its padding counted",
    test = "unit sharded_norms",
  },
  {
    name = "137-padding-of-block", file = "host/parallel/sharded/embedding.c",
    find = [[if (padding >= k.first && padding < k.first + k.count) a.padding_index = padding - k.first;]],
    replace = [[if (padding < k.count) a.padding_index = padding;]],
    breaks = "every rank takes the padding index for a row of its own block",
    test = "unit sharded_embedding",
  },
  {
    name = "138-summa-padding", file = "host/parallel/sharded/summa.c",
    find = [[return left < 0 ? 0 : left < s->block ? left : s->block;]],
    replace = [[return left < 0 ? 0 : s->block;]],
    breaks = "padding of the dimension summed over is multiplied",
    test = "unit sharded_linear_2d",
  },
  {
    name = "139-cube-gradient", file = "host/parallel/sharded/linear3d.c",
    find = [[scatter(b, k, 0, k->over_row, k->dim, terms);]],
    replace = [[scatter(b, k, 0, k->over_col, k->dim, terms);]],
    breaks = "the gradient of x is summed over the axis that y was",
    test = "unit sharded_linear_3d",
  },
  {
    name = "140-column-sum", file = "host/parallel/sharded/linear1d.c",
    find = [[if (shared) k.sharing =]],
    replace = [[if (shared && !r) k.sharing =]],
    breaks = "the gradient of rows that ranks share stays the term of one",
    test = "unit sharded_linear_column",
  },
  {
    name = "141-bias-of-sum", file = "host/parallel/sharded/linear.c",
    find = [[to.partial = c->y->layout.partial;]],
    replace = "",
    breaks = "a bias counts on every rank that holds a term of the sum",
    test = "unit sharded_linear_column_of_sums",
  },
  {
    name = "142-no-overlap", file = "host/parallel/sharded/summa.c",
    find = [[
start_travel(w, &w->s->a, &w->a, l + 1);
    start_travel(w, &w->s->b, &w->b, l + 1);
    GM_STEP(w->work, gm_comm_finish(w->comm, &w->a.pending[l & 1]));
    GM_STEP(w->work, gm_comm_finish(w->comm, &w->b.pending[l & 1]));
    multiply(w, l);]],
    replace = [[
GM_STEP(w->work, gm_comm_finish(w->comm, &w->a.pending[l & 1]));
    GM_STEP(w->work, gm_comm_finish(w->comm, &w->b.pending[l & 1]));
    multiply(w, l);
    start_travel(w, &w->s->a, &w->a, l + 1);
    start_travel(w, &w->s->b, &w->b, l + 1);]],
    breaks = "blocks of the next step begin to travel after the product of this one",
    test = "unit sharded_linear_overlap",
  },
  {
    name = "144-shard-kept", file = "host/parallel/sharded/linear1d.c",
    find = [[if (k.over && c->rank->keep_gathered && c->w->requires_grad)]],
    replace = [[if (k.over && c->w->requires_grad)]],
    breaks = "what was gathered is kept, though nobody asked",
    test = "unit sharded_linear_gather",
  },
  {
    name = "150-norm-merge", file = "host/parallel/sharded/moments.c",
    find = [[off = gm_work_binary(w, GM_FN_add, squares, gm_work_binary(w, GM_FN_mul, off, counts));]],
    replace = [[off = squares;]],
    breaks = "the variance of a row that is cut leaves out how far the means of its blocks lie apart",
    test = "unit sharded_norms",
  },
  {
    name = "160-summa-travel", file = "host/parallel/sharded/linear2d.c",
    find = [[s.a = (gm_operand){k->x, false, k->both ? k->along_row : NULL};]],
    replace = [[s.a = (gm_operand){k->x, false, k->both ? k->along_column : NULL};]],
    breaks = "blocks of x come from the ranks of a column, not of a row",
    test = "unit sharded_linear_2d",
  },
  {
    name = "161-summa-owner", file = "host/parallel/sharded/linear2d.c",
    find = [[if (!k->both) s.sum = k->along_row;]],
    replace = [[if (!k->both) s.sum = k->along_column;]],
    breaks = "the terms of a sum go to owners in the column, not in the row",
    test = "unit sharded_linear_2d",
  },
  {
    name = "162-cube-gather", file = "host/parallel/sharded/linear3d.c",
    find = [[gather_saved(b, k, W, k->over_third, k->third_dim);]],
    replace = [[gather_saved(b, k, W, k->over_col, k->third_dim);]],
    breaks = "the weight is gathered again over the axis that y was summed over",
    test = "unit sharded_linear_3d",
  },
  {
    name = "163-keep-gathered", file = "host/parallel/sharded/linear3d.c",
    find = [[if (!c->rank->keep_gathered || !other->requires_grad) return;]],
    replace = [[if (c->x || !other->requires_grad) return;]],
    breaks = "parallel.tensor.keep_gathered keeps nothing in 3D",
    test = "spec/parallel/tensor_equality_spec.lua -f 'gathered operands kept'",
  },
  {
    name = "165-vocabulary-offset", file = "host/parallel/sharded/embedding.c",
    find = [[.global, 1, -(double)k->first), GM_I64);]],
    replace = [[.global, 1, -(double)(k->first ? k->first + 1 : 0)), GM_I64);]],
    breaks = "ranks but the first look a table up one row too early",
    test = "unit sharded_embedding",
  },
  {
    name = "166-padding-index", file = "host/parallel/sharded/embedding.c",
    find = [[if (padding >= k.first && padding < k.first + k.count) a.padding_index = padding - k.first;]],
    replace = [[if (padding >= k.first && padding < k.first + k.count) a.padding_index = padding;]],
    breaks = "padding_index of the whole table is taken for one of the block",
    test = "unit sharded_embedding",
  },
  {
    name = "167-largest-of-block", file = "host/parallel/sharded/cross_entropy.c",
    find = [[gm_rows_reduce(w, k->axes, largest, GM_MAX);]],
    replace = "",
    breaks = "each rank takes its own largest logit from what it sums",
    test = "unit sharded_cross_entropy",
  },
  {
    name = "168-classes-padding", file = "host/parallel/sharded/cross_entropy.c",
    find = [[*x = gm_rows_inside(w, k, gm_work_flat(w, logits->local)), *loss,]],
    replace = [[*x = gm_work_flat(w, logits->local), *loss,]],
    breaks = "the padding of classes that are cut takes part in the loss",
    test = "unit sharded_cross_entropy",
  },
  {
    name = "169-argmax-place", file = "host/parallel/sharded/largest.c",
    find = [[*place = gm_work_affine(w, gm_work_cast(w, out[1], GM_F64), 1, (double)k->first);]],
    replace = [[*place = gm_work_affine(w, gm_work_cast(w, out[1], GM_F64), 1, 0);]],
    breaks = "the place of the largest is that in its block",
    test = "unit sharded_argmax",
  },
  {
    name = "2234-rows-of-max-travel", file = "host/parallel/sharded/largest.c",
    find = [[if (!is_cut(c, &d) || gm_tape_wanted(r, 1, c->in)) return]],
    replace = [[if (!is_cut(c, &d) || r) return]],
    breaks = "to find the largest of a row that ranks share gathers the row",
    test = "spec/layout/sharded_rows_spec.lua -n 4 -f 'largest logit'",
  },
  {
    name = "2235-max-without-gradient", file = "host/parallel/sharded/largest.c",
    find = [[if (!is_cut(c, &d) || gm_tape_wanted(r, 1, c->in)) return]],
    replace = [[if (!is_cut(c, &d)) return]],
    breaks = "the largest of a row that ranks share has no gradient",
    test = "spec/layout/sharded_rows_spec.lua -n 4 -f 'largest logit'",
  },
  {
    name = "190-ring-factor", file = "host/parallel/sharded/ring_travel.c",
    find = [[gm_status st = gm_ring_copy(w, from, rows);]],
    replace = [[
gm_attrs  a = gm_attrs_default();
    a.alpha = 1.0 / w->plan.p;
    gm_call   c = {.op = GM_OP_affine, .n_in = 1, .n_out = 1, .in = &from, .out = &rows, .attrs = &a};
    gm_status st = gm_run(w->dev, &c);]],
    breaks = "gradients of keys and values are divided by the number of ranks, as Colossal-AI's are",
    test = "unit ring_lengths",
  },
  {
    name = "191-ring-block", file = "host/parallel/sharded/ring.c",
    find = [[if (st == GM_OK && k) st = gm_ring_attend(w, x, t, k, v, dk, dv);]],
    replace = [[if (st == GM_OK && k && t + 1 < w->plan.p) st = gm_ring_attend(w, x, t, k, v, dk, dv);]],
    breaks = "backward leaves the last block of the ring out",
    test = "unit ring_lengths",
  },
  {
    name = "192-ring-merge", file = "host/parallel/sharded/ring_meet.c",
    find = [[c->attrs.accumulate = true;]],
    replace = [[c->attrs.accumulate = m->dk != NULL;]],
    breaks = "results of blocks are not merged: the last one stands",
    test = "unit ring_lengths",
  },
  {
    name = "193-ring-dropout", file = "host/parallel/sharded/ring_meet.c",
    find = [[int64_t at[4] = {rows.batch, rows.head, m->run.first, m->keys.first};]],
    replace = [[int64_t at[4] = {rows.batch, rows.head, m->run.first, 0};]],
    breaks = "every block drops the probabilities of the first keys",
    test = "unit ring_options",
  },
  {
    name = "194-ring-gradient", file = "host/parallel/sharded/ring_travel.c",
    find = [[GM_TRY(add(w, part, 0, rows_before(w, t), w->before));]],
    replace = "",
    breaks = "a block's gradient forgets what the places before have added",
    test = "unit ring_lengths",
  },
  {
    name = "195-ring-sends-all", file = "host/parallel/sharded/ring_plan.c",
    find = [[if (plan->causal && queries.first + queries.count < end) end = queries.first + queries.count;]],
    replace = "",
    breaks = "keys that no query of a rank sees are sent to it",
    test = "unit ring_lengths",
  },
  {
    name = "196-ring-zigzag", file = "host/parallel/sharded/ring_plan.c",
    find = [[at->work[0] = plan->zigzag ? gm_ring_chunk(plan, i) : at->queries;]],
    replace = [[at->work[0] = plan->zigzag ? gm_ring_chunk(plan, 2 * gm_ring_worker(plan, i)) : at->queries;]],
    breaks = "zigzag gives every place early chunks of its own instead of those of its pair",
    test = "unit ring_balance",
  },
  {
    name = "221-experts-place", file = "host/parallel/sharded/experts_plan.c",
    find = [[if (i != p->here) p->n_away += p->in[at];]],
    replace = [[if (i != p->here || e) p->n_away += p->in[at];]],
    breaks = "rows of this rank count as if they had come from elsewhere: what was received is taken for that of "
      .. "others",
    test = "unit experts_sizes",
  },
  {
    name = "223-experts-padding", file = "host/parallel/sharded/experts_plan.c",
    find = [[if (whole || w->st != GM_OK) return gm_work_compact(w, index);]],
    replace = [[if (whole || w->st != GM_OK || logical[0]) return gm_work_compact(w, index);]],
    breaks = "padding of the batch is sent to experts",
    test = "unit experts_sizes",
  },
  {
    name = "224-experts-bias", file = "host/parallel/sharded/experts.c",
    find = [[if (layer->down_bias && gm_rule_counts(r, terms)) w.down_bias = layer->down_bias->local;]],
    replace = [[if (layer->down_bias) w.down_bias = layer->down_bias->local;]],
    breaks = "where ranks share the hidden width each of them adds the second bias",
    test = "spec/experts/experts_spec.lua",
  },
  {
    name = "229-experts-places", file = "host/parallel/sharded/experts_plan.c",
    find = [[*at++ = (gm_row_run){i, p->in_at[e * p->p + i], p->in[e * p->p + i]};]],
    replace = [[*at++ = (gm_row_run){i, p->in_at[e * p->p + (i ^ 1) % p->p], p->in[e * p->p + i]};]],
    breaks = "rows that come from one place lie where those of its neighbour should",
    test = "unit experts_axes",
  },
  {
    name = "231-experts-noise", file = "host/parallel/sharded/experts_capacity.c",
    find = [[gm_status st = gm_rule_box(r, &a, &x->layout, x->ndim, x->shape);]],
    replace = [[gm_status st = GM_OK;]],
    breaks = "noise is drawn by the place in the block, not in the batch",
    test = "spec/experts/routers_spec.lua",
  },
  {
    name = "246-cube-halves", file = "host/parallel/sharded/linear3d.c",
    find = [[if (w->rank->keep_gathered && gm_backward_later(b, 1)) gm_backward_keep(b, SLOT_GATHERED, k.y);]],
    replace = "",
    breaks = "the first half of a 3D product does not keep the gradient that it gathered",
    test = "unit sharded_linear_split_3d",
  },
  {
    name = "290-experts-counts-again", file = "host/parallel/sharded/experts.c",
    find = [[gm_backward_attrs(b)->capacity);]],
    replace = [[
gm_backward_attrs(b)->capacity);
    int64_t    numbers = gm_experts_numbers(&w->plan);
    gm_experts_tell(k, &w->plan, gm_work_new(k, GM_I64, 1, &numbers));]],
    breaks = "in backward ranks tell each other once more how many rows come, which they know since forward",
    test = "spec/experts/traffic_spec.lua",
  },
  {
    name = "294-experts-second-bias", file = "host/parallel/sharded/experts.c",
    find = [[d->g = gm_backward_grad(b, 0);]],
    replace = [[
d->g = gm_backward_grad(b, 0);
    d->target[UP_BIAS] = NULL;]],
    breaks = "the second half of a backward pass forgets the first biases of experts",
    test = "spec/experts/halves_spec.lua",
  },
  {
    name = "295-experts-kept-early", file = "host/parallel/sharded/experts.c",
    find = [[if (gm_backward_later(b, X) || gm_backward_later(b, WEIGHT)) return;]],
    replace = [[if (gm_backward_later(b, X)) return;]],
    breaks = "the second half reads kept rows although a gradient of the weights is still to come",
    test = "spec/experts/halves_spec.lua",
  },
  {
    name = "346-head-gradient-narrow", file = "host/parallel/sharded/linear_cross_entropy.c",
    find = [[k->leaf[i]->param->wide_grad = true;]],
    replace = "",
    breaks = "the gradient of a head in pieces is rounded to 16 bits after each piece",
    test = 'spec/memory/head_chunk_spec.lua -f "rounds once"',
  },
  {
    name = "347-head-padding-counts", file = "host/parallel/sharded/linear_cross_entropy.c",
    find = [[if (logical[d] == block->shape[d]) continue;]],
    replace = [[if (logical[d] <= block->shape[d]) continue;]],
    breaks = "padded rows of a head in pieces count as the samples that they repeat",
    test = "spec/layout/sharded_head_spec.lua",
  },
  {
    name = "348-head-gradient-replaces", file = "host/parallel/sharded/linear_cross_entropy.c",
    find = [[a.dtype = target->dtype;]],
    replace = [[
a.dtype = target->dtype;
        a.accumulate = false;]],
    breaks = "the gradient of a head in pieces replaces what other nodes gave",
    test = "spec/nn/linear_cross_entropy_spec.lua",
  },
  {
    name = "349-head-rows-outermost", file = "host/parallel/sharded/linear_cross_entropy.c",
    find = [[if ((of_w >> axis & 1) == (unsigned)inner) to.cut[0][to.n_cuts[0]++] = axis;]],
    replace = [[if ((of_w >> axis & 1) == (unsigned)!inner) to.cut[0][to.n_cuts[0]++] = axis;]],
    breaks = "rows of a head in pieces are merged with the axes of its weight outermost",
    test = "spec/layout/sharded_head_spec.lua",
  },
  {
    name = "361-experts-room-bias", file = "host/parallel/sharded/experts_steps.c",
    find = [[multiply(w, batch(w, x), false, weight, true, bias != NULL, batch(w, y));]],
    replace = [[multiply(w, batch(w, x), false, weight, true, false, batch(w, y));]],
    breaks = "all experts at once forget their biases",
    test = "spec/cuda/experts_spec.lua",
  },
  {
    name = "362-experts-read-anyway", file = "host/parallel/sharded/experts_steps.c",
    find = [[if (p->p > 1) learn_numbers(w, r, s, all);]],
    replace = [[learn_numbers(w, r, s, all);]],
    breaks = "the host reads how many rows experts have where it need not know",
    test = "spec/cuda/experts_spec.lua",
  },
  {
    name = "375-pieces-scaled", file = "host/parallel/sharded/linear_cross_entropy.c",
    find = [[gm_tape_job job = {.pass = GM_TAPE_WHOLE, .n = 1, .outputs = &sum, .seeds = &seed};]],
    replace = [[gm_tape_job job = {.pass = GM_TAPE_WHOLE, .n = 1, .outputs = &sum, .seeds = &seed, .losses = true};]],
    breaks = "pieces of a head are scaled, and so overflow",
    test = "spec/parallel/precision_spec.lua -f pieces",
  },
  {
    name = "565-bias-in-padding", file = "host/parallel/sharded/linear.c",
    find = [[GM_STEP(c->work, gm_padding_finish(c->y)); /* the bias of rows that are padding */]],
    replace = "",
    breaks = "rows of padding have the bias of a dense layer",
    test = "-n 4 spec/layout/padding_spec.lua -f linear",
  },
  {
    name = "566-norms-of-padding", file = "host/parallel/sharded/norm.c",
    find = [[GM_STEP(w, gm_padding_fill(w->rank, &lines, x->ndim - 1, x->shape, shaped, 0));]],
    replace = "",
    breaks = "the statistics of padded rows reach the gradient of a norm",
    test = "-n 4 spec/layout/padding_spec.lua -f norm",
  },
  {
    name = "567-ignored-nan", file = "host/parallel/sharded/cross_entropy.c",
    find = [[(gm_tensor *[]){ignored, zero, p}]],
    replace = [[(gm_tensor *[]){ignored, p, p}]],
    breaks = "an ignored row of NaN has a gradient where classes are cut",
    test = "-n 2 spec/layout/padding_spec.lua -f 'ignored row'",
  },
  {
    name = "568-ignored-narrow", file = "host/parallel/sharded/cross_entropy.c",
    find = [[p = gm_work_where(w, ignored, zero, p);]],
    replace = "",
    breaks = "an ignored row of NaN in 16 bits has a gradient where classes are cut",
    test = "-n 2 spec/layout/padding_spec.lua -f 'ignored row'",
  },
  {
    name = "569-logits-summed", file = "host/parallel/sharded/cross_entropy.c",
    find = [[gm_work_sum(w, gm_work_binary(w, GM_FN_sub, widened(w, x), largest), 1u << 1, true, to);]],
    replace = [[
(void)largest;
    gm_work_sum(w, widened(w, x), 1u << 1, true, to);]],
    breaks = "label smoothing over cut classes sums the logits themselves, whose digits say nothing",
    test = "-n 2 spec/layout/large_logits_spec.lua -f 'smoothing 0.1'",
  },
  {
    name = "570-masked-classes", file = "host/parallel/sharded/cross_entropy.c",
    find = [[sums[1] = gm_work_where(w, empty, none, gm_work_binary(w, GM_FN_sub, up, t.below));]],
    replace = [[sums[1] = gm_work_binary(w, GM_FN_sub, up, t.below);]],
    breaks = "a rank whose classes are all masked gives NaN for the target's logit",
    test = "-n 2 spec/layout/large_logits_spec.lua -f 'some classes'",
  },
  {
    name = "571-own-largest", file = "host/parallel/sharded/cross_entropy.c",
    find = [[gm_rows_reduce(w, k->axes, largest, GM_MAX);]],
    replace = "",
    breaks = "each rank has a largest logit of its own",
    test = "-n 2 spec/layout/large_logits_spec.lua -f 'smoothing 0'",
  },
  {
    name = "587-table-padding", file = "host/parallel/sharded/embedding.c",
    find = [[GM_TRY_OR(gm_padding_finish(v), st, done);]],
    replace = "",
    breaks = "padding of indices finds a row of a table that is cut",
    test = "-n 4 spec/layout/padding_spec.lua -f embedding",
  },
  {
    name = "588-loss-padding", file = "host/parallel/sharded/cross_entropy.c",
    find = [[if (st == GM_OK) st = gm_comm_once(gm_padding_finish(out));]],
    replace = "",
    breaks = "rows of padding have a loss",
    test = "-n 4 spec/layout/padding_spec.lua -f 'cross_entropy'",
  },
  {
    name = "589-norm-padding", file = "host/parallel/sharded/norm.c",
    find = [[GM_STEP(w, gm_padding_finish(*out));]],
    replace = "",
    breaks = "norms of rows that are cut leave their bias in padding",
    test = "-n 4 spec/layout/padding_spec.lua -f 'norm'",
  },
  {
    name = "631-extra-shared", file = "host/parallel/sharded/linear3d.c",
    find = [[gm_backward_extra(b)[i] ? gm_work_share(k->work, saved) : gather]],
    replace = [[gm_backward_extra(b)[i] ? saved : gather]],
    breaks = "a saved block is freed twice",
    test = "unit sharded_linear_split_3d",
  },
  {
    name = "834-ring-behind", file = "host/parallel/sharded/ring_meet.c",
    find = [[m->run.count - 1 - last_key]],
    replace = [[m->run.count - last_key]],
    breaks = "the window of queries to keys of another rank is one place off",
    test = "-n 3 spec/sequence/attention_spec.lua -f window",
  },
  {
    name = "835-ring-skip", file = "host/parallel/sharded/ring_meet.c",
    find = [[m.skip = m.keys.first - w->plan.place[block].keys.first;]],
    replace = [[m.skip = 0;]],
    breaks = "a window that begins within a block of a ring reads the block's first keys",
    test = "-n 3 spec/sequence/attention_spec.lua -f window",
  },
  {
    name = "836-ring-window-block", file = "host/parallel/sharded/ring_plan.c",
    find = [[queries.first + 1 - plan->window > from]],
    replace = [[queries.first + 1 - plan->window > end]],
    breaks = "blocks behind the window are sent and computed",
    test = "unit ring_windows",
  },
  {
    name = "837-ring-window-balance", file = "host/parallel/sharded/ring.c",
    find = [[attrs->window <= local]],
    replace = [[attrs->window < local]],
    breaks = "queries with short windows are shared out anew",
    test = "unit ring_windows",
  },
}
