--- Mutants of sparse gradients, bags, cumsum and einsum.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "1671-sparse-adam-eps", file = "kernels/cpu/optimizer.c",
    find = [[j->eps = at->early_eps ? at->eps * j->root : at->eps;]],
    replace = [[j->eps = at->eps;]],
    breaks = "eps of SparseAdam joins the root behind its bias correction, as Adam's",
    test = "spec/golden/sparse_spec.lua -f adam",
  },
  {
    name = "1672-touched-end", file = "kernels/cpu/bags_t.h",
    find = [=[? j->list[j->start[u]].row : -1;]=],
    replace = [=[? j->list[j->start[u]].row : 0;]=],
    breaks = "places behind the kept rows name row 0",
    test = "spec/kernels/bags_spec.lua -f digits",
  },
  {
    name = "1673-touched-padding", file = "host/autograd/tables.c",
    find = [[GM_STEP(w, gm_padding_fill(w->rank, layout, copy->ndim, shape, copy, -1));]],
    replace = [[(void)layout, (void)shape;]],
    breaks = "places behind the end of an uneven batch touch the first row of each table",
    test = "-n 2 spec/nn/sparse_spec.lua -f 'of an embedding'",
  },
  {
    name = "1674-sparse-sum", file = "lua/ganymede/train/engine.lua",
    find = [[core.sparse_sum(self.tables)]],
    replace = [[core.sparse_sum({})]],
    breaks = "ranks do not sum the sparse gradients of tables that all of them have",
    test = "spec/parallel/dlrm_spec.lua -f sparse",
  },
  {
    name = "1675-sparse-join", file = "host/autograd/sparse.c",
    find = [[if (p->row && w->st == GM_OK) {]],
    replace = [[if (false && p->row && w->st == GM_OK) {]],
    breaks = "a second backward replaces the sparse gradient of the first",
    test = "spec/nn/sparse_spec.lua -f numbers",
  },
  {
    name = "1676-touched-row-0", file = "host/optim/touched.c",
    find = [[== GM_OK && first < 0;]],
    replace = [[== GM_OK && first <= 0;]],
    breaks = "a list that begins with row 0 updates nothing",
    test = "spec/nn/sparse_spec.lua -f bits",
  },
  {
    name = "1677-touched-digits", file = "kernels/cpu/bags.c",
    find = [[shift < 64 && largest >> shift;]],
    replace = [[shift < RADIX_BITS && largest >= 0;]],
    breaks = "rows are sorted by their lowest digit alone",
    test = "spec/kernels/bags_spec.lua -f digits",
  },
  {
    name = "1678-cumsum-gradient", file = "host/autograd/gradients.c",
    find = [[    a.inverse = !a.inverse;
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_cumsum,]],
    replace = [[    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_cumsum,]],
    breaks = "the gradient of cumsum adds up from the front",
    test = "spec/autograd/gradients_spec.lua -f cumsum",
  },
  {
    name = "1679-einsum-implied", file = "lua/ganymede/tensor/einsum.lua",
    find = [[if count[label] == 1 then out[#out + 1] = label end]],
    replace = [[out[#out + 1] = label]],
    breaks = "a result without -> keeps labels that occur twice",
    test = "spec/golden/einsum_spec.lua",
  },
  {
    name = "1680-sparse-decay", file = "lua/ganymede/optim/touched.lua",
    find = [[or item.weight_decay ~= 0 and]],
    replace = [[or item.weight_decay == false and]],
    breaks = "weight decay is accepted for tables of which only touched rows are updated",
    test = "spec/nn/sparse_spec.lua -f change",
  },
  {
    name = "1681-bag-weights", file = "host/autograd/tables.c",
    find = [[gm_tensor *in[3] = {row, gm_backward_grad(b, 0), weight}, *out[2];]],
    replace = [[gm_tensor *in[3] = {row, gm_backward_grad(b, 0), NULL}, *out[2];]],
    breaks = "the gradient of a table leaves the weights of indices out",
    test = "spec/nn/embedding_bag_spec.lua -f weights",
  },
  {
    name = "1682-bag-first", file = "host/parallel/sharded/embedding_bag.c",
    find = [[a.first = k.first;]],
    replace = [[a.first = 0;]],
    breaks = "each rank takes its rows for the first ones of the tables",
    test = "-n 2 spec/nn/embedding_bag_spec.lua -f rows",
  },
  {
    name = "1683-sparse-dense", file = "host/autograd/sparse.c",
    find = [[if (!v->param->sparse) return GM_OK;
    return GM_FAIL]],
    replace = [[if (!v->param->sparse || v->ndim) return GM_OK;
    return GM_FAIL]],
    breaks = "what other ops give to a table with a sparse gradient is lost",
    test = "spec/nn/sparse_spec.lua -f another",
  },
  {
    name = "1684-sparse-zero", file = "lua/ganymede/train/initialize.lua",
    find = [[divided.stage > 0 and core.world() > 1 and (not cut]],
    replace = [[divided.stage > 4 and core.world() > 1 and (not cut]],
    breaks = "ZeRO says nothing of tables that it does not divide",
    test = "-n 2 spec/nn/sparse_spec.lua -f ZeRO",
  },
  {
    name = "1685-sparse-norm", file = "host/gradients/norm.c",
    find = [[bool       rows = !g && gm_value_sparse_grad(parameters[i], &row, &g);]],
    replace = [[bool       rows = false && gm_value_sparse_grad(parameters[i], &row, &g);]],
    breaks = "sparse gradients do not count in the norm by which gradients are clipped",
    test = "spec/nn/sparse_spec.lua -f norm",
  },
  {
    name = "2388-sparse-no-data", file = "lua/ganymede/train/initialize.lua",
    find = [=[if context.current().plan.data == 1 then]=],
    replace = [=[if false then]=],
    breaks = "the advice for sparse tables with ZeRO is wrong where there are no data ranks",
    test = "spec/nn/sparse_spec.lua -n 2 -f 'with ZeRO'",
  },
}
