--- Mutants of host/autograd/: the tape, gradients, what is saved, passes in halves.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "021-gradient-accumulate", file = "host/autograd/terms.c",
    find = [[if (st == GM_OK && counts) st = add_into(b->rank->device, buffer, g, held);]],
    replace = [[if (st == GM_OK && counts) st = add_into(b->rank->device, buffer, g, false);]],
    breaks = "a second backward replaces the gradient of a parameter",
    test = "spec/autograd/tape_spec.lua",
  },
  {
    name = "022-gradient-target", file = "host/autograd/terms.c",
    find = [[
leaf->param->grad_set = true;
    *accumulate = held;]],
    replace = [[
leaf->param->grad_set = true;
    *accumulate = false;]],
    breaks = "rules that write into the gradient of a parameter are told that it is empty",
    test = "spec/autograd/tape_spec.lua",
  },
  {
    name = "023-gradient-shared", file = "host/autograd/terms.c",
    find = [[return t->refs == 1 && t->storage->refs == 1 && gm_tensor_is_contiguous(t);]],
    replace = [[return gm_tensor_is_contiguous(t);]],
    breaks = "a gradient that two ops share is written in place",
    test = "spec/autograd/shared_gradient_spec.lua",
  },
  {
    name = "024-saved-version", file = "host/autograd/saved.c",
    find = [[if (*out && (*out)->storage->version != s->version)]],
    replace = [[if (*out && (*out)->storage->version < s->version)]],
    breaks = "the tape does not notice that a saved tensor was changed in place",
    test = "spec/autograd/tape_spec.lua",
  },
  {
    name = "025-no-grad", file = "host/autograd/tape.c",
    find = [[if (r->no_grad) return false;]],
    replace = [[if (r->no_grad < 0) return false;]],
    breaks = "no_grad records all the same",
    test = "spec/autograd/tape_spec.lua",
  },
  {
    name = "026-broadcast-gradient", file = "host/autograd/work.c",
    find = [[if (d < lead || (shape[d - lead] == 1 && x->shape[d] != 1)) dims |= 1u << d;]],
    replace = [[if (d < lead || (shape[d - lead] == 1 && x->shape[d] == 0)) dims |= 1u << d;]],
    breaks = "the gradient of a broadcast operand is not summed over the dimensions it was repeated along",
    test = "spec/autograd/gradients_spec.lua",
  },
  {
    name = "027-division-gradient", file = "host/autograd/gradients.c",
    find = [[return gm_work_affine(w, gm_work_binary(w, GM_FN_mul, t, g), -1, 0);]],
    replace = [[return gm_work_affine(w, gm_work_binary(w, GM_FN_mul, t, g), 1, 0);]],
    breaks = "the gradient of a divisor lacks its sign",
    test = "spec/autograd/gradients_spec.lua",
  },
  {
    name = "028-scope-release", file = "host/autograd/scope.c",
    find = [[while (s->list.next != &s->list) gm_handle_release(s->list.next);]],
    replace = [[
while (s->list.next != &s->list) {
        if (s->list.next->next == &s->list) {
            gm_handle_keep(s->list.next);
            break;
        }
        gm_handle_release(s->list.next);
    }]],
    breaks = "a scope that closes keeps its last handle",
    test = "spec/memory/scope_spec.lua",
  },
  {
    name = "029-tape-scope", file = "host/autograd/node.c",
    find = [[if (!from || --from->refs) continue;]],
    replace = [[if (!from || from->refs) continue;]],
    breaks = "a graph outlives the tensors that lead to it",
    test = "spec/autograd/tape_spec.lua",
  },
  {
    name = "093-terms-of-states", file = "host/autograd/terms.c",
    find = [[*term_counts = gm_rule_counts(r, *sum & ~term);]],
    replace = [[*term_counts = true;]],
    breaks = "a replicated term is added to a partial gradient on every rank",
    test = "spec/layout/rules_spec.lua",
  },
  {
    name = "151-select-owner", file = "host/autograd/views.c",
    find = [[if (at < 0 || at >= logical[d]) at = -1;]],
    replace = [[if (at < 0) at = -1;]],
    breaks = "a slice of a dimension that is cut is taken from behind the block of a rank that does not hold it",
    test = "spec/layout/rules_stream_spec.lua",
  },
  {
    name = "152-outputs-apart", file = "host/autograd/backward.c",
    find = [[uint32_t axes = b->partial & ~o->partial & copied_over(gm_backward_output_layout(b, i, NULL));]],
    replace = [[uint32_t axes = b->partial & ~o->partial;]],
    breaks = "the gradient of an output that is cut counts on one rank only where another output has a sum",
    test = "unit partial_gradients_of_several_outputs",
  },
  {
    name = "210-trace-path", file = "host/autograd/backward.c",
    find = [[GM_TRY(gm_rank_set_path(r, n->path)); /* what it sends and allocates is that module's */]],
    replace = "",
    breaks = "backward sends under no module's name",
    test = 'spec/cli/check_modules_spec.lua -f "gives layouts"',
  },
  {
    name = "211-saved-twice", file = "host/autograd/saved.c",
    find = [[if (seen->at[i]) return false;]],
    replace = [[if (seen->at[i]) return true;]],
    breaks = "a tensor that several nodes hold for backward counts for each",
    test = 'spec/tensor/volume_spec.lua -f "on one rank"',
  },
  {
    name = "240-first-report", file = "host/autograd/passes.c",
    find = [[if (!--leaf->param->awaited && r->reducer) st =]],
    replace = [[
leaf->param->awaited--;
    if (r->reducer) st =]],
    breaks = "a leaf that several tapes read is summed after the first of their final passes",
    test = "unit tape_reducer_last_tape",
  },
  {
    name = "241-halves-activation", file = "host/autograd/linear.c",
    find = [[gm_backward_keep_grad(b, 0, dpre);]],
    replace = [[(void)dpre;]],
    breaks = "the second half of a product has its gradient before the activation",
    test = "unit sharded_linear_split_1d",
  },
  {
    name = "242-half-holds", file = "host/autograd/linear.c",
    find = [[
for (int i = 0; i < 2; i++)
        if (!gm_backward_later(b, i)) gm_backward_keep(b, !i, NULL);]],
    replace = [[
for (int i = 0; i < 1; i++)
        if (gm_backward_later(b, i)) gm_backward_keep(b, !i, NULL);]],
    breaks = "after the first half a product still holds the weight that it will not read again",
    test = "unit tape_first_half",
  },
  {
    name = "243-half-sides", file = "host/autograd/passes.c",
    find = [[return n->active;]],
    replace = [[return n->active || !n->splits;]],
    breaks = "a node off the side of the inputs runs in the first half, before its last gradient has come",
    test = "spec/autograd/halves_spec.lua",
  },
  {
    name = "244-freed-awaits", file = "host/autograd/tape.c",
    find = [[if (leaf && t->awaits) leaf->param->awaited--;]],
    replace = "",
    breaks = "a tape that was thrown away is awaited for ever",
    test = "unit tape_reducer_failure",
  },
  {
    name = "250-forward-polls", file = "host/autograd/apply.c",
    find = [[GM_TRY(gm_rank_poll(r));]],
    replace = "",
    breaks = "messages do not move while a forward pass computes",
    test = "unit executor_forward_polls",
  },
  {
    name = "353-two-readers", file = "host/autograd/backward.c",
    find = [[if (from->out[0].readers != 1 || from->out[0].grad || from->out[0].keeper) return NULL;]],
    replace = [[if (from->out[0].grad || from->out[0].keeper) return NULL;]],
    breaks = "an activation is gone through for one of two readers of its result",
    test = "spec/autograd/linear_spec.lua",
  },
  {
    name = "354-activation-twice", file = "host/autograd/backward.c",
    find = [[gm_saved_clear(&from->saved[GM_SLOT_OUTPUT + 1]);]],
    replace = "",
    breaks = "an activation is applied again by the layer that it was gone through for",
    test = "spec/autograd/linear_spec.lua",
  },
  {
    name = "356-one-flag", file = "host/autograd/linear.c",
    find = [[| held[i] || (!accumulate && gm_tensor_numel]],
    replace = [[| held[i] || accumulate || (!accumulate && gm_tensor_numel]],
    breaks = "a bias that holds nothing yet is added to, because its weight is",
    test = "spec/autograd/linear_spec.lua",
  },
  {
    name = "357-bias-apart", file = "host/autograd/linear.c",
    find = [[return !pre && gm_backward_wants(b, 1) && gm_backward_wants(b, 2);]],
    replace = [[return pre && gm_backward_wants(b, 1) && gm_backward_wants(b, 2);]],
    breaks = "bias gradients are passes of their own again",
    test = "spec/cuda/counts_spec.lua",
  },
  {
    name = "372-losses-not-scaled", file = "host/autograd/passes.c",
    find = [[GM_TRY(seed_gradient(r, t, job->outputs[i], job->seeds[i], job->losses ? r->loss_scale : NULL));]],
    replace = [[GM_TRY(seed_gradient(r, t, job->outputs[i], job->seeds[i], NULL));]],
    breaks = "gradients of f16 vanish: backward passes begin with 1 although updates divide by the scale",
    test = "spec/train/loss_scaling_spec.lua",
  },
  {
    name = "533-forward-returns-input", file = "lua/ganymede/tensor/init.lua",
    find = [[if core.requires_grad(y) then outputs[i] = core.detach(y) end]],
    replace = "",
    breaks = "a custom function whose forward returns its input cannot be recorded",
    test = "spec/autograd/tape_spec.lua -f 'returns its input'",
  },
  {
    name = "534-block-written", file = "host/autograd/value.c",
    find = [[if (v->rank->no_grad || (!v->requires_grad && !v->guarded)) return GM_OK;]],
    replace = [[if (v->rank->no_grad || !v->requires_grad) return GM_OK;]],
    breaks = "the block of a computed tensor may be written, and no gradient knows of it",
    test = "spec/autograd/in_place_spec.lua -f block",
  },
  {
    name = "535-view-of-block", file = "host/autograd/views.c",
    find = [[v->guarded = x->guarded;]],
    replace = "",
    breaks = "a view of the block of a computed tensor may be written",
    test = "spec/autograd/in_place_spec.lua -f block",
  },
  {
    name = "536-released-trunk", file = "host/autograd/reach.c",
    find = [[if (from->tape != t) return gm_node_blocked(from);]],
    replace = [[if (from->tape != t) continue;]],
    breaks = "a backward through a graph that was released stops there and says nothing",
    test = "spec/autograd/graphs_spec.lua -f 'released trunk'",
  },
  {
    name = "537-marks-stay", file = "host/autograd/reach.c",
    find = [[for (gm_node *n = t->last; n && st != GM_OK; n = n->prev) n->reached = false;]],
    replace = "",
    breaks = "a backward that was refused drags its graph into the next one",
    test = "spec/autograd/graphs_spec.lua -f 'released trunk'",
  },
  {
    name = "538-kept-graph-order", file = "host/autograd/reach.c",
    find = [[while (after && after->number > n->number) after = after->prev;]],
    replace = "",
    breaks = "a graph that is kept comes behind what was recorded later: backward meets its nodes too early",
    test = "spec/autograd/graphs_spec.lua -f retain_graph",
  },
  {
    name = "539-kept-gradients", file = "host/autograd/reach.c",
    find = [[
        forget_gradients(n);
        gm_tape_unlink(n);]],
    replace = [[
        gm_tape_unlink(n);]],
    breaks = "a graph that is kept begins its second backward with the gradients of the first",
    test = "spec/autograd/graphs_spec.lua -f retain_graph",
  },
  {
    name = "540-kept-activation", file = "host/autograd/backward.c",
    find = [[if (b->tape->retains || !from || from->op != GM_OP_linear]],
    replace = [[if (!from || from->op != GM_OP_linear]],
    breaks = "a kept graph loses what its dense layers need the second time",
    test = "spec/autograd/graphs_spec.lua -f 'dense layers'",
  },
  {
    name = "541-kept-slope", file = "host/autograd/backward.c",
    find = [[ || from->out[0].keeper) return NULL;]],
    replace = [[) return NULL;]],
    breaks = "a retained gradient of an activation is that of what the activation was given",
    test = "spec/autograd/graphs_spec.lua -f 'only an activation'",
  },
  {
    name = "542-kept-in-halves", file = "host/autograd/backward.c",
    find = [[i < b->node->n_out && b->half != GM_HALF_WEIGHT && st == GM_OK]],
    replace = [[i < b->node->n_out && st == GM_OK]],
    breaks = "a pass in two halves counts a retained gradient twice",
    test = "spec/autograd/graphs_spec.lua -f 'in two halves'",
  },
  {
    name = "543-why-blocked", file = "host/autograd/node.c",
    find = [[n->run = run;]],
    replace = [[n->run = true;]],
    breaks = "a graph that was dropped is said to have been released by a backward",
    test = "spec/autograd/taken_tapes_spec.lua -f 'gone on with'",
  },
  {
    name = "544-gradient-of-padding", file = "host/autograd/backward.c",
    find = [[GM_TRY(clear_outputs(b));]],
    replace = "",
    breaks = "a rule reads the padding of its gradients as others left it",
    test = "-n 2 spec/layout/padding_spec.lua -f 'binary add'",
  },
  {
    name = "545-own-terms-of-padding", file = "host/autograd/backward.c",
    find = [[if (p && p->padded) GM_STEP(&b->work, gm_padding_fill(]],
    replace = [[if (p && !p) GM_STEP(&b->work, gm_padding_fill(]],
    breaks = "a rule sums what it has made itself over padding: 0 * 0 / 0",
    test = "-n 2 spec/layout/padding_spec.lua -f 'binary div'",
  },
  {
    name = "546-leaf-padding", file = "host/autograd/backward.c",
    find = [[if (e->leaf) GM_TRY(gm_padding_fill(b->rank, &p->layout, (*g)->ndim, p->shape, *g, 0));]],
    replace = "",
    breaks = "the gradient of a parameter is not zero in the padding",
    test = "-n 2 spec/layout/padding_spec.lua -f 'unary relu'",
  },
  {
    name = "547-repeated-operand", file = "host/autograd/apply_blocks.c",
    find = [[(c->n_in == 1 || covered(c, y))]],
    replace = [[(c->n_in >= 1 || covered(c, y))]],
    breaks = "x + 1 leaves 1 in the padding of its result",
    test = "-n 2 spec/layout/padding_spec.lua -f 'binary add'",
  },
  {
    name = "548-ties", file = "host/autograd/gradients.c",
    find = [[gm_work_affine(w, g, 0.5, 0)]],
    replace = [[gm_work_affine(w, g, 1, 0)]],
    breaks = "both of two equal operands of maximum have the whole gradient",
    test = "spec/golden/edges_spec.lua",
  },
  {
    name = "549-pow-of-exponent-0", file = "host/autograd/gradients.c",
    find = [[return zero_where(w, GM_FN_eq, y, gm_work_binary(w, GM_FN_mul, slope, g));]],
    replace = [[return gm_work_binary(w, GM_FN_mul, slope, g);]],
    breaks = "the gradient of x^0 at 0 is 0 times infinity",
    test = "spec/golden/edges_spec.lua",
  },
  {
    name = "550-pow-of-0-to-0", file = "host/autograd/gradients.c",
    find = [[zero_where(w, GM_FN_ge, y, t)]],
    replace = [[zero_where(w, GM_FN_gt, y, t)]],
    breaks = "the gradient of the exponent of 0^0 is 0 times infinity",
    test = "spec/golden/edges_spec.lua",
  },
  {
    name = "551-custom-computed", file = "host/autograd/custom.c",
    find = [[if (!out[i] || !out[i]->requires_grad) continue;]],
    replace = [[if (n_out >= 0) continue;]],
    breaks = "a custom function's result forgets the graph that it has of its own",
    test = "spec/autograd/tape_spec.lua -f 'put behind'",
  },
  {
    name = "552-copied-gradient", file = "bindings/lua_in_place.c",
    find = [[if (src->requires_grad && !src->rank->no_grad)]],
    replace = [[if (src->requires_grad && src->refs < 0)]],
    breaks = "copy_ from a tensor that requires a gradient loses that gradient",
    test = "spec/autograd/in_place_spec.lua -f 'copy_ from'",
  },
  {
    name = "553-fill-of-padding", file = "bindings/lua_in_place.c",
    find = [[return gm_tensor_view(v->local, v->ndim, logical, v->local->stride, v->local->offset, out);]],
    replace = [[return gm_tensor_view(v->local, v->ndim, v->local->shape, v->local->stride, v->local->offset, out);]],
    breaks = "fill_ writes into padding",
    test = "-n 2 spec/layout/padding_spec.lua -f 'writes over'",
  },
  {
    name = "554-softmax-of-number", file = "host/autograd/views.c",
    find = [[if (x->ndim) return gm_apply_first(r, op, 1, &x, attrs, y);]],
    replace = [[if (x->ndim >= 0) return gm_apply_first(r, op, 1, &x, attrs, y);]],
    breaks = "softmax of a number is refused",
    test = "spec/golden/edges_spec.lua -f number",
  },
  {
    name = "555-kept-padding", file = "host/autograd/backward.c",
    find = [[
    GM_TRY(clear_outputs(b));
    GM_TRY(keep_gradients(b));]],
    replace = [[
    GM_TRY(keep_gradients(b));
    GM_TRY(clear_outputs(b));]],
    breaks = "retained gradients are not zero in their padding",
    test = "-n 2 spec/layout/padding_spec.lua -f retained",
  },
  {
    name = "556-block-of-computed", file = "bindings/lua_tensor.c",
    find = [[local->guarded = v->guarded || v->node;]],
    replace = [[local->guarded = v->guarded;]],
    breaks = "the block of a computed tensor is taken for a tensor of its own",
    test = "spec/autograd/in_place_spec.lua -f block",
  },
  {
    name = "585-graph-of-another", file = "host/autograd/tape.c",
    find = [[if (e->from && e->from->tape != t) return gm_node_blocked(e->from);]],
    replace = "",
    breaks = "a tape that was taken is run without what it depends on elsewhere",
    test = "spec/autograd/taken_tapes_spec.lua -f 'goes on from'",
  },
  {
    name = "598-kept-graph-new-mask", file = "host/autograd/backward.c",
    find = [[if (stream->step < 0 && n->rng_step != r->device->step.rng_step)]],
    replace = [[if (stream->step < 0 && n->rng_step != r->device->step.rng_step && false)]],
    breaks = "a graph that is kept past its step drops what the new step drops",
    test = "spec/autograd/graphs_spec.lua -f kept",
  },
  {
    name = "601-slices-of-a-sum", file = "host/autograd/terms.c",
    find = [[gm_backward_set_partial(b, 0, partial_of(b, &n->in[0])); /* as the slices say, while they are there */]],
    replace = [[gm_backward_set_partial(b, 0, 0);]],
    breaks = "the gradient of what was unbound is whole, though those of its slices are sums",
    test = "spec/layout/rules_gradients_spec.lua -f 'slices side by side'",
  },
  {
    name = "602-slices-not-copied", file = "host/autograd/views.c",
    find = [[if (g && g->storage == whole->storage) continue;]],
    replace = [[if (g) continue;]],
    breaks = "the gradient of a slice that was not written in its place is lost",
    test = "spec/autograd/gradients_spec.lua -f unbind",
  },
  {
    name = "603-place-of-another", file = "host/autograd/backward.c",
    find = [[(int)from->extra[0], e->output)]],
    replace = [[(int)from->extra[0], 0 * e->output)]],
    breaks = "the gradients of all slices are written in the place of the first",
    test = "spec/autograd/gradients_spec.lua -f packed",
  },
  {
    name = "604-form-not-chosen", file = "host/autograd/apply.c",
    find = [[else st = form ? apply_sharded]],
    replace = [[else st = form && op != GM_OP_argmax ? apply_sharded]],
    breaks = "argmax runs on blocks though its dimension is cut",
    test = "unit sharded_argmax",
  },
  {
    name = "605-unwanted-kept", file = "host/autograd/apply.c",
    find = [[if (c->want[i]) continue;]],
    replace = [[if (c->want || i) continue;]],
    breaks = "what only a gradient reads is handed to a caller who did not ask, and stays",
    test = "spec/autograd/tape_spec.lua -f 'only a gradient reads'",
  },
  {
    name = "606-window-after-failure", file = "bindings/lua_comm.c",
    find = [[r->batch_offset = r->batch_count = 0;]],
    replace = "",
    breaks = "after a step that failed ranks draw for the rows of different micro-batches",
    test = "-n 3 spec/pipeline/recover_spec.lua -f 'random numbers alike'",
  },
  {
    name = "607-calls-after-failure", file = "bindings/lua_comm.c",
    find = [[gm_rank_begin_step(r);]],
    replace = "",
    breaks = "after a step that failed ranks count different calls of random ops",
    test = "-n 3 spec/pipeline/recover_spec.lua -f 'random numbers alike'",
  },
  {
    name = "629-work-yield", file = "host/autograd/work.c",
    find = [[if (t->storage->refs > views + 1) return t; /* others have it, too */]],
    replace = [[return t;]],
    breaks = "a work's tensor keeps its memory although nobody else has it",
    test = "unit work_yields*",
  },
  {
    name = "630-work-copy", file = "host/autograd/work.c",
    find = [[return w->st != GM_OK || gm_tensor_is_contiguous(t) ? t : gm_work_cast(w, t, t->dtype);]],
    replace = [[return gm_work_cast(w, t, t->dtype);]],
    breaks = "contiguous tensors are copied",
    test = "unit work_copies*",
  },
  {
    name = "884-few-bits-dx", file = "host/autograd/linear.c",
    find = [[gm_tensor *dpre = gm_linear_rule_bias(b, gm_work_contiguous(w, gm_backward_grad(b, 0)));
    if (w->st != GM_OK || !gm_backward_wants(b, 0)) return;]],
    replace = [[gm_tensor *dpre = gm_work_contiguous(w, gm_backward_grad(b, 0));
    if (w->st != GM_OK || !gm_backward_wants(b, 0)) return;]],
    breaks = "the gradient of x goes past the activation",
    test = "spec/kernels/few_bits_spec.lua -f 'let gradients'",
  },
  {
    name = "2351-gradients-without-inputs", file = "lua/ganymede/tensor/init.lua",
    find = [[if g ~= nil and i > n then]],
    replace = [[if g ~= nil and i > 64 then]],
    breaks = "a gradient that a custom function returns for no input is ignored",
    test = "-n 1 spec/autograd/tape_spec.lua -f 'refuses what is no tensor'",
  },
}
