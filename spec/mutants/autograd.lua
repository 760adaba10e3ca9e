--- Mutants of host/autograd/: the tape, gradients, what is saved, passes in halves.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "021-gradient-accumulate", file = "host/autograd/backward.c",
    find = [[if (st == GM_OK && counts) st = add_into(gm_backward_device(b), buffer, g, held);]],
    replace = [[if (st == GM_OK && counts) st = add_into(gm_backward_device(b), buffer, g, false);]],
    breaks = "a second backward replaces the gradient of a parameter",
    test = "spec/autograd/tape_spec.lua",
  },
  {
    name = "022-gradient-target", file = "host/autograd/backward.c",
    find = [[
leaf->grad_set = true;
    *accumulate = held;]],
    replace = [[
leaf->grad_set = true;
    *accumulate = false;]],
    breaks = "rules that write into the gradient of a parameter are told that it is empty",
    test = "spec/autograd/tape_spec.lua",
  },
  {
    name = "023-gradient-shared", file = "host/autograd/backward.c",
    find = [[return t->refs == 1 && t->storage->refs == 1 && gm_tensor_is_contiguous(t);]],
    replace = [[return gm_tensor_is_contiguous(t);]],
    breaks = "a gradient that two ops share is written in place",
    test = "spec/autograd/shared_gradient_spec.lua",
  },
  {
    name = "024-saved-version", file = "host/autograd/backward.c",
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
    name = "026-broadcast-gradient", file = "host/autograd/rules.c",
    find = [[if (d < lead || (spec->shape[d - lead] == 1 && x->shape[d] != 1)) a.dims |= 1u << d;]],
    replace = [[if (d < lead || (spec->shape[d - lead] == 1 && x->shape[d] == 0)) a.dims |= 1u << d;]],
    breaks = "the gradient of a broadcast operand is not summed over the dimensions it was repeated along",
    test = "spec/autograd/gradients_spec.lua",
  },
  {
    name = "027-division-gradient", file = "host/autograd/gradients.c",
    find = [[st = gm_rule_scale(b, t, -1, out);]],
    replace = [[st = gm_rule_scale(b, t, 1, out);]],
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
    name = "093-terms-of-states", file = "host/autograd/backward.c",
    find = [[*term_counts = keeps(r, *sum & ~term);]],
    replace = [[*term_counts = true;]],
    breaks = "a replicated term is added to a partial gradient on every rank",
    test = "spec/layout/rules_spec.lua",
  },
  {
    name = "151-select-owner", file = "host/autograd/views.c",
    find = [[if (at < 0 || at >= logical[d]) at = -1;]],
    replace = [[if (at < 0 || at >= local[d]) at = -1;]],
    breaks = "a slice of a dimension that is cut is taken from the padding of a rank that does not hold it",
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
    find = [[if (!--leaf->awaited) st = gm_reducer_ready(r->reducer, leaf);]],
    replace = [[
leaf->awaited--;
    st = gm_reducer_ready(r->reducer, leaf);]],
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
    find = [[if (leaf && t->awaits) leaf->awaited--;]],
    replace = "",
    breaks = "a tape that was thrown away is awaited for ever",
    test = "unit tape_reducer_failure",
  },
  {
    name = "250-forward-polls", file = "host/autograd/apply.c",
    find = [[GM_TRY_OR(gm_rank_poll(r), st, fail);]],
    replace = "",
    breaks = "messages do not move while a forward pass computes",
    test = "unit executor_forward_polls",
  },
  {
    name = "353-two-readers", file = "host/autograd/backward.c",
    find = [[if (from->out[0].readers != 1 || from->out[0].grad || from->out[0].keeper) return GM_OK;]],
    replace = [[if (from->out[0].grad || from->out[0].keeper) return GM_OK;]],
    breaks = "an activation is gone through for one of two readers of its result",
    test = "spec/autograd/linear_spec.lua",
  },
  {
    name = "354-activation-twice", file = "host/autograd/backward.c",
    find = [[empty_slot(&from->saved[GM_SLOT_OUTPUT + 1]);]],
    replace = "",
    breaks = "an activation is applied again by the layer that it was gone through for",
    test = "spec/autograd/linear_spec.lua",
  },
  {
    name = "356-one-flag", file = "host/autograd/linear.c",
    find = [[| held[i] || (!a.accumulate && gm_tensor_numel]],
    replace = [[| held[i] || a.accumulate || (!a.accumulate && gm_tensor_numel]],
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
}
