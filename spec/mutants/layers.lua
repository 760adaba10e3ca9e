--- Mutants of lua/ganymede/nn/ and models/: layers, their tensor, sequence and expert parallelism.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "159-table-never-turned", file = "lua/ganymede/nn/tensor_parallel/two_d.lua",
    find = [[return as_it_lies < 2 * turned and w or w:redistribute { cuts = { "col", "row" } }]],
    replace = [[return as_it_lies >= 0 and w or w:redistribute { cuts = { "col", "row" } }]],
    breaks = "results as wide as the vocabulary travel, however many rows there are",
    test = "-n 4 spec/tensor/placements_spec.lua",
  },
  {
    name = "170-activation-of-terms", file = "lua/ganymede/nn/tensor_parallel/one_d.lua",
    find = [[
or nil))
  if skip then return y, b end
  return f and ops[f](y) or y]],
    replace = [[
or nil, f))
  if skip then return y, b end
  return y]],
    breaks = "the second Linear of a pair in 1D takes its activation of the terms of a sum",
    test = "-n 2 spec/tensor/layers_spec.lua -f row",
  },
  {
    name = "171-ids-of-depth", file = "lua/ganymede/nn/tensor_parallel/two_d.lua",
    find = [[enter = function(_, index) return stream.enter(index, mode == "2.5d" and "depth" or "") end,]],
    replace = [[enter = function(_, index) return stream.enter(index, "") end,]],
    breaks = "ranks of all depths look up all samples in a wide table in 2.5D",
    test = "-n 8 spec/tensor/placements_spec.lua",
  },
  {
    name = "172-padding-row", file = "lua/ganymede/nn/embedding.lua",
    find = [[function initializer.finish(weight) core.zero_row(weight, opt.padding_index + 1) end]],
    replace = [[function initializer.finish(weight) core.zero_row(weight, math.max(opt.padding_index, 1) + 1) end]],
    breaks = "the row of padding_index 0 of a table is its second one",
    test = "-n 2 spec/tensor/placements_spec.lua",
  },
  {
    name = "173-cube-storage", file = "lua/ganymede/nn/tensor_parallel/three_d.lua",
    find = [[add(Linear, function(self) return is_second(self) and second or first end, {]],
    replace = [[add(Linear, function(self) return first end, {]],
    breaks = "a second Linear in 3D stores its weight as a first one",
    test = "-n 8 spec/tensor/layers_spec.lua -f MLP",
  },
  {
    name = "174-old-mesh", file = "lua/ganymede/nn/stream.lua",
    find = [[return now and now.context == live and now or look_around(live)]],
    replace = [[return now or look_around(live)]],
    breaks = "how activations lie is that of the mesh before",
    test = "-n 2 spec/tensor/placements_spec.lua",
  },
  {
    name = "175-rows-unseen", file = "lua/ganymede/nn/stream.lua",
    find = [[and ends_with(layout.cuts[1], form.rows)]],
    replace = "",
    breaks = "an activation whose width lies right is taken as it is, whatever cuts its batch",
    test = "-n 8 spec/tensor/placements_spec.lua",
  },
  {
    name = "176-vocabulary-limit", file = "lua/ganymede/nn/tensor_parallel/init.lua",
    find = [[return type(rows) == "number" and type(limit) == "number" and rows > limit]],
    replace = [[return type(rows) == "number" and type(limit) == "number" and rows >= limit]],
    breaks = "a table of exactly vocab_parallel_limit rows is cut over them",
    test = "-n 2 spec/tensor/placements_spec.lua",
  },
  {
    name = "177-heads-unshared", file = "lua/ganymede/nn/tensor_parallel/init.lua",
    find = [[if heads % parts == 0 and kv_heads % parts == 0 then return end]],
    replace = [[if heads % 1 == 0 then return end]],
    breaks = "heads that ranks cannot share out are not noticed",
    test = "-n 4 spec/tensor/errors_spec.lua",
  },
  {
    name = "179-vocabulary-whole", file = "lua/ganymede/nn/tensor_parallel/init.lua",
    find = [[return type(rows) == "number" and type(limit) == "number" and rows > limit]],
    replace = [[return type(rows) == "number" and type(limit) == "number" and rows > limit and nil]],
    breaks = "no vocabulary is cut, however large",
    test = "spec/parallel/tensor_equality_spec.lua -f 'gpt: 3d on 8 in f64'",
  },
  {
    name = "180-stationary", file = "lua/ganymede/nn/tensor_parallel/two_d.lua",
    find = [[= { store = outputs >= inputs and { "col]],
    replace = [[= { store = outputs < inputs and { "col]],
    breaks = "2D moves the larger two of x, w and y",
    test = "spec/tensor/volume_spec.lua",
  },
  {
    name = "183-sequence-of-stream", file = "lua/ganymede/nn/stream.lua",
    find = [[now.sequence = present(now.sizes, mode and plan.tensor.sequence and "sequence.tensor" or "sequence")]],
    replace = [[now.sequence = present(now.sizes, "sequence")]],
    breaks = "Megatron's sequences are not cut",
    test = "spec/tensor/volume_spec.lua",
  },
  {
    name = "184-swap", file = "lua/ganymede/nn/tensor_parallel/three_d.lua",
    find = [[local function is_second(self) return self.opt.partition == "row" end]],
    replace = [[local function is_second(self) return self.opt.partition == "other" end]],
    breaks = "the second Linear of a pair lies as the first: its input moves, which nobody asked for",
    test = "spec/tensor/volume_spec.lua",
  },
  {
    name = "198-ulysses-heads", file = "lua/ganymede/nn/sequence_parallel.lua",
    find = [[if heads % ranks == 0 then return end]],
    replace = [[if ranks > 0 then return end]],
    breaks = "heads that cannot be shared out are not refused",
    test = "spec/sequence/attention_spec.lua -f share",
  },
  {
    name = "227-balance-load", file = "lua/ganymede/nn/router.lua",
    find = [[local move = ops.sub(ops.cast(ops.lt(share, all), "f64"), ops.cast(ops.gt(share, all), "f64"))]],
    replace = [[local move = ops.sub(ops.cast(ops.gt(share, all), "f64"), ops.cast(ops.lt(share, all), "f64"))]],
    breaks = "the bias of a router moves towards the experts that have most",
    test = "spec/experts/routers_spec.lua",
  },
  {
    name = "260-absent-allocated", file = "lua/ganymede/nn/module.lua",
    find = [[if p.present and not p.tied then out[#out + 1] = p end]],
    replace = [[if not p.tied then out[#out + 1] = p end]],
    breaks = "a stage allocates what other stages hold",
    test = 'spec/pipeline/stage_spec.lua -f "not a byte more"',
  },
  {
    name = "261-border-closed", file = "lua/ganymede/nn/transformer.lua",
    find = [[local x = stream and ops.add(branch, stream) or branch]],
    replace = [[local x = branch]],
    breaks = "a part in the middle of a stack sends its branch without the stream",
    test = 'spec/pipeline/sections_spec.lua -f "sections of GPT"',
  },
  {
    name = "262-tied-elsewhere", file = "lua/ganymede/nn/presence.lua",
    find = [[if still and presence.is_held(tie.module, tie.entry) then return true end]],
    replace = [[if still and presence.is_held(tie.module, tie.entry) then return false end]],
    breaks = "a stage does not hold a parameter that it is tied to and another stage owns",
    test = 'spec/pipeline/stage_spec.lua -f "stages together"',
  },
  {
    name = "292-bias-of-one-piece", file = "lua/ganymede/nn/router.lua",
    find = [[taken:copy_(ops.add(taken, core.experts_counts(index, self.opt.experts, "f64"):settle()))]],
    replace = [[taken:copy_(core.experts_counts(index, self.opt.experts, "f64"):settle())]],
    breaks = "the bias of experts moves against the load of the last batch of a step alone",
    test = "spec/experts/routers_spec.lua",
  },
  {
    name = "350-projection-after-update", file = "lua/ganymede/nn/projection.lua",
    find = [[if core.version(self.weight) == self.version then return end]],
    replace = [[if self.version then return end]],
    breaks = "logits are made of weights that are newer than the output",
    test = "spec/train/head_chunk_spec.lua",
  },
  {
    name = "360-experts-weights-narrow", file = "lua/ganymede/nn/router.lua",
    find = [[return index, weight, self:losses(logits, probabilities, index)]],
    replace = [[return index, ops.cast(weight, x:dtype()), self:losses(logits, probabilities, index)]],
    breaks = "a router rounds the weights of choices to 16 bits",
    test = "spec/experts/narrow_spec.lua",
  },
  {
    name = "363-experts-load-kept", file = "lua/ganymede/nn/router.lua",
    find = [[taken:fill_(0)]],
    replace = "",
    breaks = "the load that a router has balanced counts again in later steps",
    test = "spec/experts/routers_spec.lua",
  },
  {
    name = "523-load-leaves-no-grad", file = "lua/ganymede/nn/module.lua",
    find = [[
  local ok, why = pcall(function()
    for _, e in ipairs(self:state()) do fn(e.name, e.tensor) end
  end)]],
    replace = [[
  local ok, why = true
  for _, e in ipairs(self:state()) do fn(e.name, e.tensor) end]],
    breaks = "after a load that failed nothing is recorded any more",
    test = "spec/nn/errors_spec.lua -f 'a load that fails'",
  },
  {
    name = "524-smoothing-of-one", file = "lua/ganymede/nn/losses.lua",
    find = [[label_smoothing = { type = "number", default = 0, min = 0, below = 1,]],
    replace = [[label_smoothing = { type = "number", default = 0, min = 0, max = 1,]],
    breaks = "label smoothing may be 1, of which the target has no part any more",
    test = "spec/nn/losses_spec.lua",
  },
  {
    name = "525-no-layers", file = "lua/ganymede/nn/containers.lua",
    find = [[if self:size() > 0 then return end]],
    replace = [[do return end]],
    breaks = "a model without its layers_cfg gives back what it is called with",
    test = "spec/train/colossal_spec.lua",
  },
  {
    name = "750-lora-after-activation", file = "lua/ganymede/nn/linear.lua",
    find = [[  local y, b = self:product(x)
  y = ops.add(y, adapter(x))]],
    replace = [[  local y, b = self:product(x, f)
  f = nil
  y = ops.add(y, adapter(x))]],
    breaks = "an adapter adds to what the activation returned",
    test = "spec/nn/lora_spec.lua -f before",
  },
  {
    name = "751-lora-trains-all", file = "lua/ganymede/nn/module.lua",
    find = [[      if p.entry.frozen then t:requires_grad(false) end]],
    replace = [[]],
    breaks = "what gm.lora freezes before it is allocated is trained",
    test = "spec/nn/lora_spec.lua -f freezes",
  },
  {
    name = "752-lora-row", file = "lua/ganymede/nn/tensor_parallel/one_d.lua",
    find = [[if is(self, "row") then return "row", "whole" end]],
    replace = [[if is(self, "row") then return "row", "column" end]],
    breaks = "the second layer of an adapter in 1D returns a part of the width",
    test = "spec/parallel/lora_spec.lua -f sequence",
  },
  {
    name = "753-lora-merge", file = "lua/ganymede/nn/lora.lua",
    find = [[transpose(1, 2)) * adapter.opt.scale]],
    replace = [[transpose(1, 2))]],
    breaks = "merging forgets the scale",
    test = "spec/nn/lora_spec.lua -f merge",
  },
  {
    name = "804-cache-room", file = "lua/ganymede/nn/cache.lua",
    find = [[ops.narrow(new[name], 2, 1, self.length):copy_(old)]],
    replace = [[ops.narrow(new[name], 2, 1, self.length):copy_(old * 0)]],
    breaks = "kept keys and values are lost when their room grows",
    test = "spec/nn/cache_spec.lua",
  },
  {
    name = "805-cache-starts", file = "lua/ganymede/nn/cache.lua",
    find = [[rows[r][at - first + 1] = math.max(0, at - start)]],
    replace = [[rows[r][at - first + 1] = at]],
    breaks = "positions of a shorter prompt count from the start of its row",
    test = "spec/nn/cache_spec.lua -f gpt",
  },
  {
    name = "806-query-norm", file = "lua/ganymede/nn/attention.lua",
    find = [[ops.rms_norm(k, self:use "key_norm", eps)]],
    replace = [[ops.rms_norm(k, self:use "query_norm", eps)]],
    breaks = "keys are normalised by the weights of queries",
    test = "spec/golden/layers_spec.lua -f qwen3",
  },
  {
    name = "838-window-of-kept", file = "lua/ganymede/nn/attention.lua",
    find = [[(window + count - 1) + 1]],
    replace = [[(window + count - 1) + 2]],
    breaks = "a step of generation sees one key less than the window",
    test = "spec/nn/cache_spec.lua -f windows",
  },
  {
    name = "839-windows-in-turn", file = "lua/ganymede/nn/transformer.lua",
    find = [[(i - 1) % #window + 1]],
    replace = [[i % #window + 1]],
    breaks = "the blocks take the windows of a list from the second one on",
    test = "spec/nn/attention_spec.lua -f turn",
  },
  {
    name = "840-layer-types", file = "lua/ganymede/hub/families/llama.lua",
    find = [[slides = types[i] == "sliding_attention"]],
    replace = [[slides = types[i] ~= "sliding_attention"]],
    breaks = "layers with windows and layers without change places",
    test = "-n 1 spec/hub/pretrained_spec.lua -f qwen2_windows",
  },
  {
    name = "841-logit-cap", file = "lua/ganymede/nn/classifier.lua",
    find = [[ops.tanh(y * (1 / cap)) * cap]],
    replace = [[ops.tanh(y) * cap]],
    breaks = "logits are not divided by the cap",
    test = "spec/nn/attention_spec.lua -f 'capped logits'",
  },
  {
    name = "842-padding-lost", file = "lua/ganymede/models/llama.lua",
    find = [[return embed(self, tokens), key_mask end]],
    replace = [[return embed(self, tokens) end]],
    breaks = "a key mask does not reach the blocks of Llama",
    test = "spec/nn/attention_spec.lua -f padding",
  },
  {
    name = "843-max-window-layers", file = "lua/ganymede/hub/families/llama.lua",
    find = [[i > full]],
    replace = [[i >= full]],
    breaks = "one layer too many of Qwen2 has a window",
    test = "-n 1 spec/hub/pretrained_spec.lua -f wrong",
  },
}
